// lorafuse_cuda_open opens the driver at path, starts it and fills the table
// of the trampolines. It gives 0, a result of the driver, or -1, and writes why.
int lorafuse_cuda_open(const char *path, char *why, int size, int *missing);

// lorafuse_cuda_call calls trampoline i without arguments, for tests.
int lorafuse_cuda_call(int i);

int lorafuse_cuda_symbols(void);
