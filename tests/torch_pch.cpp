// Holds the precompiled header that the torch tests share.
