// A libnvidia-ml.so.1 for tests, of the machine that machine.h makes up.
#include <dlfcn.h>

#include <algorithm>

#include "machine.h"

extern "C" {
struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
// A handle is a card and an instance of it, or -1.
struct Handle {
  int card, instance;
};

#define ENTER                                      \
  if (int failure = enter(__func__)) return failure
enum { INVALID = 2, UNSUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7 };

static int text(char *to, unsigned n, const std::string &s) {
  if (s.size() + 1 > n) return TOO_SMALL;
  strcpy(to, s.c_str());
  return 0;
}

// used is what is in use of a card or an instance: by other processes and by this
// one, or what STANDIN_CURVE says.
static unsigned long long used(Handle *h) {
  unsigned long long others = machine().held(h->card);
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto taken = cuda ? (void (*)(int, int, size_t *, long *))dlsym(cuda, "standin_taken") : nullptr;
  if (!taken) return others;
  size_t bytes = 0;
  long windows = 0;
  taken(h->card, h->instance, &bytes, &windows);
  std::vector<std::pair<double, double>> points;
  for (auto &p : split(setting("STANDIN_CURVE", ""), ',')) {
    double x = 0, y = 0;
    if (sscanf(p.c_str(), "%lf:%lf", &x, &y) == 2) points.push_back({x, y});
  }
  if (points.size() < 2 || !windows) return others + bytes;
  size_t i = 1;
  while (i + 1 < points.size() && windows > points[i].first) i++;
  auto a = points[i - 1], b = points[i];
  return others + (unsigned long long)std::max(0., a.second + (windows - a.first) * (b.second - a.second) / (b.first - a.first) + .5);
}

int nvmlInit_v2() { ENTER; return 0; }
int nvmlShutdown() { ENTER; return 0; }
const char *nvmlErrorString(int code) {
  static thread_local char s[32];
  snprintf(s, sizeof s, "stand-in error %d", code);
  return s;
}
int nvmlSystemGetDriverVersion(char *s, unsigned n) { ENTER; return text(s, n, "550.54.15"); }
int nvmlSystemGetCudaDriverVersion(int *v) { ENTER; *v = machine().cuda; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { ENTER; *v = machine().cuda; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { ENTER; *n = machine().devices; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Handle **h) {
  ENTER;
  if ((int)i >= machine().devices) return INVALID;
  *h = new Handle{(int)i, -1};
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *id, Handle **h) {
  ENTER;
  for (int card = 0; card < machine().devices; card++)
    for (int i = -1; i < machine().mig; i++)
      if (uuid(card, i) == id) {
        *h = new Handle{card, i};
        return 0;
      }
  return NOT_FOUND;
}
struct Utilisation {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(Handle *, Utilisation *u) { ENTER; *u = {(unsigned)number("STANDIN_UTILISATION", 70), 20}; return 0; }
int nvmlDeviceGetPowerUsage(Handle *, unsigned *mW) { ENTER; *mW = 150000; return 0; }
int nvmlDeviceGetClockInfo(Handle *, int kind, unsigned *MHz) { ENTER; *MHz = kind == 1 ? 1410 : 1215; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle *, unsigned long long *bits) { ENTER; *bits = number("STANDIN_SLOWDOWN", 0); return 0; }
int nvmlDeviceGetTotalEccErrors(Handle *, int, int, unsigned long long *) { ENTER; return UNSUPPORTED; }
int nvmlDeviceGetName(Handle *, char *s, unsigned n) { ENTER; return text(s, n, "Stand-in GPU"); }
int nvmlDeviceGetUUID(Handle *h, char *s, unsigned n) { ENTER; return text(s, n, uuid(h->card, h->instance)); }
int nvmlDeviceGetMemoryInfo_v2(Handle *h, Memory2 *m) {
  ENTER;
  if (machine().mig && h->instance < 0) return NO_PERMISSION; // to all but administrators
  m->total = machine().memory / (h->instance < 0 ? 1 : machine().mig);
  m->used = std::min<unsigned long long>(m->total, used(h));
  m->free = m->total - m->used;
  m->reserved = machine().reserved;
  m->total += m->reserved;
  return 0;
}
int nvmlDeviceGetMemoryInfo(Handle *h, Memory *m) {
  Memory2 two;
  int failure = nvmlDeviceGetMemoryInfo_v2(h, &two);
  if (!failure) *m = {two.total, two.free, two.used};
  return failure;
}
int nvmlDeviceGetCudaComputeCapability(Handle *, int *major, int *minor) { ENTER; *major = machine().major; *minor = machine().minor; return 0; }
int nvmlDeviceGetComputeMode(Handle *, int *mode) { ENTER; *mode = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(Handle *h, unsigned *n, ProcessInfo *p) {
  ENTER;
  unsigned all = h->card == 0 ? machine().others.size() : 0, room = *n;
  *n = all;
  if (all > room) return TOO_SMALL;
  for (unsigned i = 0; i < all; i++) p[i] = {machine().others[i].pid, machine().others[i].bytes, ~0u, ~0u};
  return 0;
}
// As drivers 535.43 to 535.86 have it: longer entries than its other callers know.
struct LongProcessInfo {
  ProcessInfo info;
  unsigned long long secret;
};
int nvmlDeviceGetComputeRunningProcesses_v3(Handle *h, unsigned *n, LongProcessInfo *p) {
  std::vector<ProcessInfo> all(*n);
  int failure = nvmlDeviceGetComputeRunningProcesses_v2(h, n, all.data());
  for (unsigned i = 0; !failure && i < *n; i++) p[i] = {all[i], ~0ull};
  return failure;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle *, unsigned *n, ProcessInfo *) { ENTER; *n = 0; return 0; }
int nvmlDeviceGetMigMode(Handle *, unsigned *now, unsigned *next) { ENTER; *now = *next = machine().mig > 0; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(Handle *, unsigned *n) { ENTER; *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle *h, unsigned i, Handle **out) {
  ENTER;
  if ((int)i >= machine().mig) return NOT_FOUND;
  *out = new Handle{h->card, (int)i};
  return 0;
}
}
