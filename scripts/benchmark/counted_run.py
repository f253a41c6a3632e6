"""`zonemta run`, counted: python counted_run.py LIBRARY ARGUMENTS… , with LIBRARY (`counter.c`) preloaded."""

import ctypes
import runpy
import sys
import threading

library = ctypes.PyDLL(sys.argv[1])
threading.setprofile(lambda *_: library.count_thread())  # the first call in a new thread; then that counts itself
library.count_python()
sys.path.insert(0, "")  # as by `python -m`
sys.argv[:] = ["zonemta", *sys.argv[2:]]
runpy.run_module("zonemta_py", run_name="__main__")
