// Holds a precompiled header that tests share.
