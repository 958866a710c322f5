"""Does the interpreter run other threads while one of them waits in herd?"""

import threading
import time

PAUSE = 0.2  # seconds by which a peer comes late
FEWEST = 10  # of some 200 counts in that time: one that waited for the interpreter would come to 1 or 2


def counts_during(wait):
    """Returns how far another thread of Python has counted, a count a millisecond, while wait() ran in this one."""
    count, stopped = 0, threading.Event()

    def run():
        nonlocal count
        while not stopped.is_set():
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    before = count
    wait()
    counted = count - before
    stopped.set()
    thread.join()
    return counted
