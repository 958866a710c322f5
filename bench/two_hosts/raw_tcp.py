"""Plain TCP, as many bytes each way at the same time:   raw_tcp.py NODE ADDRESS BYTES ITERATIONS (NODE 0 listens)"""
import socket
import sys
import threading
import time

node, address, size, iterations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if node == 0:
    listener = socket.create_server((address, 29600))
    wire = listener.accept()[0]
else:
    for _ in range(200):
        try:
            wire = socket.create_connection((address, 29600))
            break
        except OSError:
            time.sleep(0.02)
wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
out, into = bytes(size), bytearray(size)


def receive(buffer):
    view, got = memoryview(buffer), 0
    while got < len(buffer):
        got += wire.recv_into(view[got:])


for i in range(-2, iterations):
    wire.sendall(b"x")
    receive(bytearray(1))
    begin = time.perf_counter()
    sender = threading.Thread(target=wire.sendall, args=(out,))
    sender.start()
    receive(into)
    sender.join()
    if i >= 0 and node == 0:
        print(f"us {(time.perf_counter() - begin) * 1e6:.3f}")
