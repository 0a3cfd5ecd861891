// Both open a library and return 0 with the reason in why, [size], where they
// cannot. Neither is called twice at once.
int linnet_open_cuda(char *why, size_t size);
int linnet_open_nvml(char *why, size_t size);

// The library's own cuInit; only after linnet_open_cuda.
int linnet_init_cuda(void);
