// The classes of the fake Metal. An object has a number, so that its use after its end
// can be told, and keeps its device alive, as Apple's do.
#import <Metal/Metal.h>
#include <pthread.h>
#include <time.h>

#include "fake_live.h"
#include "fake_memory.h"
#include "fake_settings.h"
#include "msl.h"

enum {
  LF_MOST_BUFFERS = 31,
  LF_MOST_THREADS = 1024,
  LF_MOST_THREADGROUP_MEMORY = 32768,
  LF_MOST_BYTES = 4096,  // of setBytes
  LF_THREADGROUP_SLOTS = 8,
};

@class LFDevice, LFLine;

@interface LFObject : NSObject {
 @public
  LFDevice *device;
  uint64_t number;
  int kind;
  NSString *label;
}
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
- (id)initWithKind:(int)kind device:(LFDevice *)device;
@end

@interface LFDevice : LFObject <MTLDevice> {
 @public
  lf_settings settings;
  NSString *name;
}
@end

@interface LFBuffer : LFObject <MTLBuffer> {
 @public
  char *memory;
  NSUInteger length;
  uint64_t serial;  // of its memory
  MTLResourceOptions options;
  void (^deallocator)(void *, NSUInteger);
}
@end

@interface LFLibrary : LFObject <MTLLibrary> {
 @public
  lf_msl *shaders;
}
// compile gives nil and an error where the source is wrong.
+ (LFLibrary *)compile:(NSString *)source options:(MTLCompileOptions *)options device:(LFDevice *)device error:(NSError **)error;
@end

@interface LFFunction : LFObject <MTLFunction> {
 @public
  LFLibrary *library;
  int kernel;
}
@end

@interface LFPipeline : LFObject <MTLComputePipelineState> {
 @public
  LFLibrary *library;
  int kernel;
  const char *name;
  lf_msl_info about;
}
+ (LFPipeline *)of:(LFFunction *)function error:(NSError **)error;
@end

@interface LFEvent : LFObject <MTLSharedEvent> {
  pthread_mutex_t mu;
  pthread_cond_t changed;
  uint64_t value;
}
// waitFor gives NO if the event has not come to the value in time.
- (BOOL)waitFor:(uint64_t)wanted milliseconds:(uint64_t)milliseconds;
@end

@interface LFResidencySet : LFObject <MTLResidencySet> {
  NSMutableSet *allocations, *added, *removed;  // after and since the last commit
}
@end

@class LFCommandBuffer;

// A queue's own thread runs its command buffers, one after the other.
@interface LFQueue : LFObject <MTLCommandQueue> {
  pthread_mutex_t mu;
  pthread_cond_t room;
  NSUInteger most, made, running;
  NSMutableArray *sets;  // of residency
  struct lf_line *line;
}
- (id)initWithDevice:(LFDevice *)device most:(NSUInteger)most;
- (void)append:(LFCommandBuffer *)commands;  // its place in the order
- (void)committed;                           // one that was appended may run now
- (void)leave:(BOOL)ran;                     // a command buffer has ended, or never ran
- (BOOL)isCurrentThread;
@end

// The commands of a command buffer, in order.
typedef enum { LF_DISPATCH, LF_COPY, LF_FILL, LF_SIGNAL, LF_WAIT, LF_USE, LF_USED } lf_work_kind;

typedef struct {
  lf_work_kind kind;
  uint64_t stage;  // dispatches of one stage may run in any order; 0: in this one
  LFPipeline *pipeline;
  lf_msl_args *args;
  uint64_t serials[LF_MOST_BUFFERS];  // memory that it uses, 0 if none
  char *to;
  const char *from;
  size_t bytes;
  uint8_t fill;
  LFEvent *event;
  uint64_t value;  // of the event; the usage of LF_USE, which holds until LF_USED
  uint64_t numbers[2];  // the pipeline or event, which a command buffer may not retain
} lf_work;

@interface LFCommandBuffer : LFObject <MTLCommandBuffer> {
 @public
  LFQueue *queue;
  BOOL retains;
  id open;  // the encoder that has not ended
  uint64_t stages;

 @private
  lf_work *work;
  size_t count, capacity;
  NSMutableArray *kept;
  NSMutableArray *copies;  // of setBytes
  NSMutableIndexSet *used; // the serials of memory
  struct {
    uint64_t serial, usage;
  } *declared;  // by the encoder that runs
  size_t declarations, declared_capacity;
  MTLCommandBufferHandler *scheduled, *completed;
  int schedules, completions;
  pthread_mutex_t mu;
  pthread_cond_t changed;
  MTLCommandBufferStatus status;
  BOOL ended;  // handlers too
  NSError *error;
  double kernel_start, kernel_end, gpu_start, gpu_end;
  uint64_t done;  // work of the dispatches
}
- (id)initWithQueue:(LFQueue *)queue retains:(BOOL)retains;
- (lf_work *)add:(lf_work_kind)kind;       // valid until the next one
- (void)keep:(id)object;                   // until the command buffer has ended
- (void)use:(LFBuffer *)buffer as:(uint64_t *)serial;
- (const void *)copy:(const void *)bytes length:(NSUInteger)length;
- (void)encoderEnded;
- (BOOL)isCommitted;
- (void)run;
@end

@interface LFEncoder : LFObject <MTLCommandEncoder> {
 @public
  LFCommandBuffer *commands;
  BOOL ended;
}
- (id)initWithCommands:(LFCommandBuffer *)commands;
- (void)check:(const char *)method;  // that it has not ended
@end

@interface LFComputeEncoder : LFEncoder <MTLComputeCommandEncoder> {
  MTLDispatchType type;
  uint64_t stage;
  LFPipeline *pipeline;
  struct {
    LFBuffer *buffer;
    const void *bytes;
    NSUInteger offset, length;
  } bound[LF_MOST_BUFFERS];
  NSUInteger threadgroup[LF_THREADGROUP_SLOTS];
  BOOL declares;  // resources, by useResource
}
- (id)initWithCommands:(LFCommandBuffer *)commands type:(MTLDispatchType)type;
@end

@interface LFBlitEncoder : LFEncoder <MTLBlitCommandEncoder>
@end

// lf_check_kind ends the process unless object is of the class and of the device.
void lf_check_kind(id object, Class wanted, LFDevice *device, const char *method);

NSError *lf_error(NSString *domain, NSInteger code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// lf_label returns the text after the name of an object in messages: its label, if any.
const char *lf_label(LFObject *object);

// Time, by the monotonic clock: a condition that waits by it, a point ahead, and now.
void lf_cond_init(pthread_cond_t *c);
struct timespec lf_after(uint64_t milliseconds);
double lf_now(void);
