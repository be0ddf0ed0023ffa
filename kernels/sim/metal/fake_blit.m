// Blit encoders: copies and fills. Offsets and sizes are multiples of 4, as macOS wants them.
#import "fake.h"

static void check_range(LFBuffer *b, NSUInteger offset, NSUInteger bytes, const char *method) {
  if (offset > b->length || bytes > b->length - offset)
    lf_die("%s: %lu bytes at offset %lu, the buffer has %lu", method, (unsigned long)bytes, (unsigned long)offset, (unsigned long)b->length);
  if (!bytes) lf_die("%s: no bytes", method);
  if (offset % 4 || bytes % 4) lf_die("%s: %lu bytes at offset %lu, both must be multiples of 4", method, (unsigned long)bytes, (unsigned long)offset);
}

@implementation LFBlitEncoder
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)from
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)to
                  size:(NSUInteger)size {
  [self check:"copyFromBuffer"];
  lf_check_kind(source, [LFBuffer class], device, "copyFromBuffer");
  lf_check_kind(destination, [LFBuffer class], device, "copyFromBuffer");
  LFBuffer *s = (LFBuffer *)source, *d = (LFBuffer *)destination;
  check_range(s, from, size, "copyFromBuffer: source");
  check_range(d, to, size, "copyFromBuffer: destination");
  if (s == d && from < to + size && to < from + size) lf_die("copyFromBuffer: source and destination overlap");
  lf_work *w = [commands add:LF_COPY];
  w->from = s->memory + from;
  w->to = d->memory + to;
  w->bytes = size;
  [commands use:s as:&w->serials[0]];
  [commands use:d as:&w->serials[1]];
}
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  [self check:"fillBuffer"];
  lf_check_kind(buffer, [LFBuffer class], device, "fillBuffer");
  LFBuffer *b = (LFBuffer *)buffer;
  check_range(b, range.location, range.length, "fillBuffer");
  lf_work *w = [commands add:LF_FILL];
  w->to = b->memory + range.location;
  w->bytes = range.length;
  w->fill = value;
  [commands use:b as:&w->serials[0]];
}
@end
