// What libcuda.cpp tells the kernels of a card's memory.
#pragma once
#include <atomic>
#include <cstdint>

// Range is an allocation: its addresses, and two numbers for each four bytes in
// which ptx.h notes who wrote and who read them.
struct Range {
  uint64_t begin, end;
  std::atomic<uint64_t> *shadow;
};
