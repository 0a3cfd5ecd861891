#!/usr/bin/env python3
"""Usage: scripts/check.d/bcryptprimitives.py >bcryptprimitives.dll

The DLL of Windows that Go's programs take random numbers from and that Wine before 9.0
has not: no code, one section with one export, ProcessPrng, which is advapi32's
SystemFunction036 (RtlGenRandom)."""
import struct
import sys

START = 0x1000  # of the section, in memory
texts = b"bcryptprimitives.dll\0advapi32.SystemFunction036\0ProcessPrng\0\0"
at = START + 40 + 12  # behind the directory and its three tables, of one function each
dll, function, name = at, at + texts.index(b"advapi32"), at + texts.index(b"Process")
tables = [START + 40 + 4 * i for i in range(3)]
exports = struct.pack("<4s4sHHIIIIIII", b"", b"", 0, 0, dll, 1, 1, 1, *tables)
exports += struct.pack("<III", function, name, 0) + texts

head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
head += struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022)  # x86-64, a DLL
head += struct.pack("<HBBIIIIIQII", 0x20B, 0, 0, 0, 512, 0, 0, START, 0x180000000, 0x1000, 512)
head += struct.pack("<HHHHHHIIIIHH", 6, 0, 0, 0, 6, 0, 0, 0x2000, 512, 0, 2, 0x100)
head += struct.pack("<QQQQII", 0x100000, 0x1000, 0x100000, 0x1000, 0, 16)
head += struct.pack("<II", START, len(exports)).ljust(16 * 8, b"\0")  # export is the first directory
head += struct.pack("<8sIIIIIIHHI", b".rdata", len(exports), START, 512, 512, 0, 0, 0, 0, 0x40000040)
sys.stdout.buffer.write(head.ljust(512, b"\0") + exports.ljust(512, b"\0"))
