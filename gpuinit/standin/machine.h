// The machine that libcuda.cpp and libnvml.cpp make up, from the environment:
//
//   STANDIN_DEVICES=1          cards
//   STANDIN_MEMORY=4294967296  bytes of each card
//   STANDIN_RESERVED=0         bytes beside it that NVML counts, for the driver
//   STANDIN_CONTEXT=0          bytes of a card that a context takes
//   STANDIN_CAPABILITY=8.0     compute capability
//   STANDIN_MIG=0              MIG instances of each card
//   STANDIN_PROCESSES=7:1000   other processes on card 0 and the bytes they hold,
//                              separated by commas
//   STANDIN_MAX_ALLOC=…        bytes; a larger allocation finds no memory
//   STANDIN_LOSE=10:1:999      card 1 is lost by its 11th launch, with error 999
//                              (without card: every card)
//   STANDIN_WRONG=3            every third launch on a card does nothing
//   STANDIN_CURVE=50:664100000,300:5753900000
//                              NVML's bytes in use by windows of the last batch, in
//                              lines between and beyond these; without it what is
//                              allocated
//   STANDIN_UTILISATION=70     percent, by NVML
//   STANDIN_SLOWDOWN=4         NVML's bits of reasons
//   STANDIN_HANG=cuInit,…      functions that never return; cuInit:3 returns after
//                              three seconds
//   STANDIN_FAIL=cuInit:999,…  functions that return this error
//   STANDIN_LOG=file           gets a line for each call: process, function
//   STANDIN_KERNELS=k_%.so     the kernels, as ptx.py and ptx.h make them of PTX, where
//                              the last % is the number in its .target sm_70. The
//                              library exports
//     void *find_kernel(const char *name)            null where there is none
//     void run_kernel(void *kernel, const unsigned grid[3],
//                     const unsigned block[3], void **params,
//                     const Range *ranges, size_t count)
//
// CUDA_VISIBLE_DEVICES works as with the driver.
#pragma once
#include <fcntl.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

inline const char *setting(const char *name, const char *otherwise) {
  const char *v = getenv(name);
  return v && *v ? v : otherwise;
}
inline long long number(const char *name, long long otherwise) {
  const char *v = getenv(name);
  return v && *v ? atoll(v) : otherwise;
}
inline std::vector<std::string> split(const std::string &s, char by) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= s.size();) {
    size_t end = std::min(s.find(by, at), s.size());
    if (end > at) out.push_back(s.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

struct Other {
  unsigned pid;
  unsigned long long bytes;
};
struct Machine {
  int devices = number("STANDIN_DEVICES", 1), mig = number("STANDIN_MIG", 0), cuda = 12040;
  size_t memory = number("STANDIN_MEMORY", 4ll << 30), reserved = number("STANDIN_RESERVED", 0), context = number("STANDIN_CONTEXT", 0), max_alloc = number("STANDIN_MAX_ALLOC", 0);
  int major = 8, minor = 0;
  std::vector<Other> others;
  Machine() {
    sscanf(setting("STANDIN_CAPABILITY", "8.0"), "%d.%d", &major, &minor);
    for (auto &p : split(setting("STANDIN_PROCESSES", ""), ',')) {
      Other o{};
      sscanf(p.c_str(), "%u:%llu", &o.pid, &o.bytes);
      others.push_back(o);
    }
  }
  size_t held(int card) const {
    size_t n = 0;
    for (auto &o : others) n += card == 0 ? o.bytes : 0;
    return n;
  }
};
inline Machine &machine() {
  static Machine m;
  return m;
}
// uuid of a card, or of its MIG instance.
inline std::string uuid(int card, int instance = -1) {
  char s[64];
  snprintf(s, sizeof s, "%s-%08x-0000-4000-8000-%012x", instance < 0 ? "GPU" : "MIG", 0x4c494e00 + card, instance + 1);
  return s;
}
// enter notes the call of a function and does what the environment says of it:
// never return, or return an error, which is not 0.
inline int enter(const char *function) {
  static const char *log = getenv("STANDIN_LOG");
  if (log) {
    char line[128];
    int n = snprintf(line, sizeof line, "%d %s\n", getpid(), function), f = open(log, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (f >= 0 && write(f, line, n) != n) perror(log);
    close(f);
  }
  static auto hang = split(setting("STANDIN_HANG", ""), ','), fail = split(setting("STANDIN_FAIL", ""), ',');
  for (auto &h : hang) {
    while (h == function) pause();
    if (h.rfind(std::string(function) + ":", 0) == 0) sleep(atoi(h.c_str() + strlen(function) + 1));
  }
  for (auto &f : fail)
    if (f.rfind(std::string(function) + ":", 0) == 0) return atoi(f.c_str() + strlen(function) + 1);
  return 0;
}
