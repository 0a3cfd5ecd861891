// A libcuda.so.1 for tests, of the machine that machine.h makes up. Memory is
// the process's own, with guards around each allocation, and a launch runs a
// kernel that ptx.py translated for the CPU.
//
// It is strict rather than fast: what a stream was given is done only when
// somebody waits for it (or for a copy from it), streams
// that were made non-blocking do not wait for the default one, and calls without
// a current context, copies outside of allocations and stale handles fail. So
// work that forgets to wait reads old bytes here every time.
#include <cuda.h>
#include <dlfcn.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "machine.h"
#include "range.h"

namespace {

constexpr size_t guard = 256;
constexpr unsigned char filler = 0xFF; // NaN as float and as half, so that reading what nobody wrote shows

// Card is a visible device: a card or an instance of one.
struct Card {
  int card, instance;
  size_t memory;
  std::mutex mu;
  size_t taken = 0;
  long launches = 0, windows = 0, lose = -1, wrong = number("STANDIN_WRONG", 0);
  CUresult lost = CUDA_SUCCESS, code = CUDA_ERROR_UNKNOWN;
};
std::deque<Card> cards;

struct Kernel {
  std::string name;
  std::vector<size_t> params; // bytes of each
  void *code;
  void (*run)(void *code, const unsigned *grid, const unsigned *block, void **params, const Range *ranges, size_t count);
};
struct Module {
  std::map<std::string, Kernel> kernels;
};
struct Stream {
  bool blocking = true;
  std::deque<std::function<void()>> queue;
  void run() {
    while (!queue.empty()) {
      auto f = std::move(queue.front());
      queue.pop_front();
      f();
    }
  }
};
struct Context {
  Card *card;
  std::recursive_mutex mu;
  Stream none; // the default stream
  std::set<Stream *> streams;
  std::set<Module *> modules;
  std::map<char *, Range> memory;
  std::map<char *, size_t> host; // page-locked

  // sync runs the default stream, those that it waits for and, with all, the rest.
  void sync(bool all) {
    for (auto *s : streams)
      if (all || s->blocking) s->run();
    none.run();
  }
  // holds says whether n bytes at p lie in one allocation.
  bool holds(CUdeviceptr p, size_t n) const {
    auto i = memory.upper_bound((char *)p);
    if (i == memory.begin()) return false;
    --i;
    return p + n <= i->second.end;
  }
  // locked says whether n bytes at p lie in one page-locked allocation.
  bool locked(const void *p, size_t n) const {
    auto i = host.upper_bound((char *)p);
    if (i == host.begin()) return false;
    --i;
    return (char *)p + n <= i->first + i->second;
  }
  void release(const Range &r) {
    char *p = (char *)r.begin;
    size_t n = r.end - r.begin;
    for (size_t i = 0; i < guard; i++)
      if ((unsigned char)p[-1 - (long)i] != filler || (unsigned char)p[n + i] != filler) {
        fprintf(stderr, "standin: a kernel wrote outside of an allocation of %zu bytes\n", n);
        abort();
      }
    free(p - guard);
    free(r.shadow);
    std::lock_guard l(card->mu);
    card->taken -= n;
  }
};
std::mutex all_contexts;
std::set<Context *> contexts;
thread_local std::vector<Context *> current;

Context *now() {
  if (current.empty()) return nullptr;
  std::lock_guard l(all_contexts);
  return contexts.count(current.back()) ? current.back() : nullptr;
}
// kernels opens the library of the kernels for sm_target.
void *kernels(int target) {
  std::string file = setting("STANDIN_KERNELS", "");
  if (size_t at = file.rfind('%'); at != std::string::npos) file.replace(at, 1, std::to_string(target));
  if (file.empty()) return nullptr;
  void *lib = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!lib) fprintf(stderr, "standin: %s\n", dlerror());
  return lib;
}
void make_cards() {
  std::vector<std::pair<int, int>> there;
  auto &m = machine();
  for (int c = 0; c < m.devices; c++)
    for (int i = m.mig ? 0 : -1; i < m.mig; i++) there.push_back({c, i});
  std::vector<std::pair<int, int>> seen;
  if (const char *v = getenv("CUDA_VISIBLE_DEVICES")) {
    for (auto &entry : split(v, ',')) {
      size_t before = seen.size();
      for (auto &t : there) {
        bool named = isdigit(entry[0]) ? atoi(entry.c_str()) == t.first : uuid(t.first, t.second).rfind(entry, 0) == 0;
        if (named && seen.size() == before) seen.push_back(t);
      }
      if (seen.size() == before) break;
    }
  } else {
    seen = there;
  }
  if (m.mig && seen.size() > 1) seen.resize(1);
  for (auto &s : seen) {
    auto &c = cards.emplace_back();
    c.card = s.first, c.instance = s.second, c.memory = m.memory / (m.mig ? m.mig : 1);
    auto lose = split(setting("STANDIN_LOSE", ""), ':');
    if (lose.empty() || lose.size() > 1 && atoi(lose[1].c_str()) != s.first) continue;
    c.lose = atol(lose[0].c_str());
    if (lose.size() > 2) c.code = (CUresult)atoi(lose[2].c_str());
  }
}

// parse finds the kernels of a PTX text and the sizes of their parameters.
CUresult parse(const char *image, Module &m) {
  std::string ptx = image;
  int major = 0, minor = 0, target = 0;
  size_t v = ptx.find(".version "), t = ptx.find(".target sm_");
  if (v == std::string::npos || t == std::string::npos) return CUDA_ERROR_INVALID_PTX;
  sscanf(&ptx[v], ".version %d.%d", &major, &minor);
  sscanf(&ptx[t], ".target sm_%d", &target);
  // CUDA 12.4 reads PTX 8.4, CUDA 11.8 reads 7.8.
  int cuda = machine().cuda;
  if (major * 10 + minor > (cuda / 1000 - 4) * 10 + cuda % 1000 / 10) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  if (target > machine().major * 10 + machine().minor) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  void *lib = kernels(target);
  auto find = lib ? (void *(*)(const char *))dlsym(lib, "find_kernel") : nullptr;
  auto run = lib ? (decltype(Kernel::run))dlsym(lib, "run_kernel") : nullptr;
  for (size_t at = 0; (at = ptx.find(".entry ", at)) != std::string::npos;) {
    at += 7;
    size_t open = ptx.find('(', at), close = ptx.find(')', at);
    if (open == std::string::npos || close == std::string::npos) return CUDA_ERROR_INVALID_PTX;
    Kernel k;
    k.name = ptx.substr(at, open - at);
    while (!k.name.empty() && isspace(k.name.back())) k.name.pop_back();
    for (auto &p : split(ptx.substr(open + 1, close - open - 1), ',')) {
      size_t param = p.find(".param");
      if (param == std::string::npos) continue;
      size_t type = p.find_first_of("usbf", param + 6), count = p.find('[');
      size_t bits = 0;
      while (type != std::string::npos) { // .align 8 .b8 x[24]: the type comes after a dot
        if (p[type - 1] == '.' && isdigit(p[type + 1])) { bits = atoi(&p[type + 1]); break; }
        type = p.find_first_of("usbf", type + 1);
      }
      if (!bits) return CUDA_ERROR_INVALID_PTX;
      k.params.push_back(bits / 8 * (count == std::string::npos ? 1 : atoi(&p[count + 1])));
    }
    k.code = find && run ? find(k.name.c_str()) : nullptr, k.run = run;
    m.kernels[k.name] = k;
    at = close;
  }
  return CUDA_SUCCESS;
}

} // namespace

#define ENTER \
  if (int failure = enter(__func__)) return (CUresult)failure
// INSIDE is ENTER for calls that need a context whose card lives.
#define INSIDE                                             \
  ENTER;                                                   \
  Context *c = now();                                      \
  if (!c) return CUDA_ERROR_INVALID_CONTEXT;               \
  std::lock_guard<std::recursive_mutex> inside(c->mu);     \
  if (c->card->lost) return c->card->lost
#define STREAM(handle)                                                     \
  Stream *s = handle ? (Stream *)handle : &c->none;                        \
  if (handle && !c->streams.count(s)) return CUDA_ERROR_INVALID_HANDLE
// DONE is how a call ends that may have run kernels.
#define DONE return c->card->lost
#define CARD(d) \
  if (d < 0 || d >= (int)cards.size()) return CUDA_ERROR_INVALID_DEVICE

extern "C" {

CUresult cuInit(unsigned) {
  ENTER;
  static std::once_flag once;
  std::call_once(once, make_cards);
  return cards.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *v) { ENTER; *v = machine().cuda; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { ENTER; *n = cards.size(); return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { ENTER; CARD(i); *d = i; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { ENTER; CARD(d); snprintf(s, n, "Stand-in GPU"); return CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { ENTER; CARD(d); *n = cards[d].memory; return CUDA_SUCCESS; }
CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) {
  ENTER;
  CARD(d);
  std::string hex = uuid(cards[d].card, cards[d].instance).substr(4);
  int n = 0;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    if (hex[i] == '-') i++;
    u->bytes[n++] = (char)std::stoi(hex.substr(i, 2), nullptr, 16);
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
  ENTER;
  CARD(d);
  switch (a) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = machine().major; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = machine().minor; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 24; break;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = 1024; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *v = 32; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = 48 << 10; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = 96 << 10; break;
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *v = 1; break;
  default: *v = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned, CUdevice d) {
  ENTER;
  CARD(d);
  if (cards[d].lost) return cards[d].lost;
  {
    std::lock_guard l(cards[d].mu);
    if (cards[d].taken + machine().context + machine().held(cards[d].card) > cards[d].memory) return CUDA_ERROR_OUT_OF_MEMORY;
    cards[d].taken += machine().context;
  }
  auto *c = new Context;
  c->card = &cards[d];
  std::lock_guard l(all_contexts);
  contexts.insert(c);
  current.push_back(c);
  *out = (CUcontext)c;
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER;
  auto *c = (Context *)context;
  {
    std::lock_guard l(all_contexts);
    if (!contexts.erase(c)) return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!current.empty() && current.back() == c) current.pop_back();
  std::unique_lock<std::recursive_mutex> inside(c->mu);
  if (!c->card->lost) c->sync(true);
  for (auto &m : c->memory) c->release(m.second);
  for (auto &h : c->host) free(h.first);
  for (auto *s : c->streams) delete s;
  for (auto *m : c->modules) delete m;
  {
    std::lock_guard l(c->card->mu);
    c->card->taken -= machine().context;
  }
  inside.unlock();
  delete c;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { INSIDE; c->sync(true); DONE; }

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
  INSIDE;
  std::lock_guard l(c->card->mu);
  *total = c->card->memory;
  size_t used = c->card->taken + machine().held(c->card->card);
  *left = used < *total ? *total - used : 0;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  INSIDE;
  if (!n) return CUDA_ERROR_INVALID_VALUE;
  size_t most = machine().max_alloc;
  {
    std::lock_guard l(c->card->mu);
    if (most && n > most || c->card->taken + n + machine().held(c->card->card) > c->card->memory) return CUDA_ERROR_OUT_OF_MEMORY;
    c->card->taken += n;
  }
  char *all = (char *)aligned_alloc(256, (n + 2 * guard + 255) & ~255ull);
  auto *shadow = (std::atomic<uint64_t> *)calloc(n / 4 + 1, 2 * sizeof(uint64_t));
  if (!all || !shadow) {
    fprintf(stderr, "standin: no memory for %zu bytes of a card and four times that beside it; set STANDIN_MEMORY lower\n", n);
    abort();
  }
  memset(all, filler, n + 2 * guard);
  *p = (CUdeviceptr)(all + guard);
  c->memory[all + guard] = {*p, *p + n, shadow};
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  INSIDE;
  auto i = c->memory.find((char *)p);
  if (i == c->memory.end()) return CUDA_ERROR_INVALID_VALUE;
  c->sync(true);
  c->release(i->second);
  c->memory.erase(i);
  DONE;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
  INSIDE;
  if (!n) return CUDA_ERROR_INVALID_VALUE;
  *p = malloc(n);
  if (!*p) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(*p, filler, n);
  c->host[(char *)*p] = n;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *p) {
  INSIDE;
  c->sync(true);
  if (!c->host.erase((char *)p)) return CUDA_ERROR_INVALID_VALUE;
  free(p);
  DONE;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
  INSIDE;
  if (!c->holds(to, n)) return CUDA_ERROR_INVALID_VALUE;
  c->sync(false);
  memcpy((void *)to, from, n);
  DONE;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
  INSIDE;
  if (!c->holds(from, n)) return CUDA_ERROR_INVALID_VALUE;
  c->sync(false);
  memcpy(to, (void *)from, n);
  DONE;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char v, size_t n) {
  INSIDE;
  if (!c->holds(to, n)) return CUDA_ERROR_INVALID_VALUE;
  c->sync(false);
  memset((void *)to, v, n);
  DONE;
}
// From pageable memory the driver copies the bytes before it returns, and to
// pageable memory it returns when they are there; page-locked memory is read and
// written in its turn.
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream stream) {
  INSIDE;
  STREAM(stream);
  if (!c->holds(to, n)) return CUDA_ERROR_INVALID_VALUE;
  if (c->locked(from, n)) {
    s->queue.push_back([=] { memcpy((void *)to, from, n); });
    return CUDA_SUCCESS;
  }
  auto bytes = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n);
  s->queue.push_back([=] { memcpy((void *)to, bytes->data(), n); });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream) {
  INSIDE;
  STREAM(stream);
  if (!c->holds(from, n)) return CUDA_ERROR_INVALID_VALUE;
  if (c->locked(to, n)) {
    s->queue.push_back([=] { memcpy(to, (void *)from, n); });
    return CUDA_SUCCESS;
  }
  s->run();
  memcpy(to, (void *)from, n);
  DONE;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  INSIDE;
  auto *s = new Stream;
  s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
  c->streams.insert(s);
  *out = (CUstream)s;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  INSIDE;
  auto *s = (Stream *)stream;
  if (!c->streams.count(s)) return CUDA_ERROR_INVALID_HANDLE;
  s->run();
  c->streams.erase(s);
  delete s;
  DONE;
}
CUresult cuStreamSynchronize(CUstream stream) {
  INSIDE;
  STREAM(stream);
  if (!stream) c->sync(false);
  s->run();
  DONE;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  INSIDE;
  auto *m = new Module;
  if (CUresult r = parse((const char *)image, *m)) {
    delete m;
    return r;
  }
  c->modules.insert(m);
  *out = (CUmodule)m;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  INSIDE;
  if (!c->modules.erase((Module *)module)) return CUDA_ERROR_INVALID_HANDLE;
  c->sync(true);
  delete (Module *)module;
  DONE;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  INSIDE;
  auto *m = (Module *)module;
  if (!c->modules.count(m)) return CUDA_ERROR_INVALID_HANDLE;
  auto k = m->kernels.find(name);
  if (k == m->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  if (!k->second.code) {
    fprintf(stderr, "standin: no kernel %s in STANDIN_KERNELS=%s\n", name, setting("STANDIN_KERNELS", ""));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *out = (CUfunction)&k->second;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream stream, void **params, void **) {
  INSIDE;
  STREAM(stream);
  if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || gy > 65535 || gz > 65535) return CUDA_ERROR_INVALID_VALUE;
  auto *k = (Kernel *)f;
  std::vector<std::string> values;
  for (size_t i = 0; i < k->params.size(); i++) values.emplace_back((char *)params[i], k->params[i]);
  s->queue.push_back([=]() mutable {
    Card &card = *c->card;
    long n;
    {
      std::lock_guard l(card.mu);
      n = ++card.launches;
      if (k->name.rfind("output_", 0) == 0) card.windows = gx; // a block a window
      if (card.lose >= 0 && n > card.lose) card.lost = card.code;
    }
    if (card.lost || card.wrong && n % card.wrong == 0) return;
    std::vector<void *> p;
    for (auto &v : values) p.push_back(v.data());
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    std::vector<Range> ranges;
    for (auto &m : c->memory) ranges.push_back(m.second);
    k->run(k->code, grid, block, p.data(), ranges.data(), ranges.size());
  });
  return CUDA_SUCCESS;
}
// For libnvml.cpp: bytes that this process took of a card, and the windows of its
// last batch.
void standin_taken(int card, int instance, size_t *bytes, long *windows) {
  *bytes = 0, *windows = 0;
  for (auto &c : cards) {
    if (c.card != card || instance >= 0 && c.instance != instance) continue;
    std::lock_guard l(c.mu);
    *bytes += c.taken, *windows = std::max(*windows, c.windows);
  }
}
}
