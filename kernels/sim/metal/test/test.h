// Cases of the fake Metal's self-test. Each is run in a process of its own, since most
// of them must end it: with "fake Metal: " and the message that the case was given.
#import <Metal/Metal.h>
#include <lf_metal_fake.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct test_case {
  const char *name, *message;  // message NULL: the case ends well
  void (*run)(void);
  struct test_case *next;
} test_case;
extern test_case *test_cases;

#define CASE_(function, message)                                                   \
  static void function(void);                                                      \
  __attribute__((constructor)) static void add_##function(void) {                  \
    static test_case c = {#function, message, function, NULL};                     \
    c.next = test_cases;                                                           \
    test_cases = &c;                                                               \
  }                                                                                \
  static void function(void)
#define RIGHT(function) CASE_(function, NULL)
#define WRONG(function, message) CASE_(function, message)

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                       \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

// Setup of most cases. All of them live until the process ends, except
// autoreleased ones.
typedef struct {
  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  id<MTLLibrary> library;  // of test_shaders
} setup;
extern const char test_shaders[];
setup test_setup(void);  // with shaders; test_device without
id<MTLDevice> test_device(void);

// test_pipeline makes the pipeline of a kernel of the library.
id<MTLComputePipelineState> test_pipeline(setup s, const char *kernel);

// test_compile compiles a text of one's own, with safe math.
id<MTLLibrary> test_compile(id<MTLDevice> device, const char *text, NSError **error);

id<MTLBuffer> test_buffer(setup s, NSUInteger bytes);

// test_scale encodes x[i] *= factor for i < n, of floats at an offset.
void test_scale(setup s, id<MTLComputeCommandEncoder> e, id<MTLBuffer> x, NSUInteger offset, float factor, unsigned n);

// test_run commits, and waits for the end that the status says.
void test_run(id<MTLCommandBuffer> c, MTLCommandBufferStatus status);

bool test_says(NSError *e, const char *text);
