// Copies and fills.
#include <string.h>

#include "copy.h"
#include "memory.h"

using namespace lfsim;

abi::Result lfsim::check_memory(Context* context, const void* p, size_t bytes, Side side, const char* what, bool* pageable) {
  Range r;
  *pageable = false;
  bool found = AddressBook::get().find((uintptr_t)p, &r);
  if (found && r.kind == Kind::Device && r.holds((uintptr_t)p, 1)) {
    if (r.state != Life::Live) return refuse(abi::InvalidValue, "%s: use after free of %s", what, r.name().c_str());
    if (side == Side::Host) return refuse(abi::InvalidValue, "%s: %p is device memory, host memory is expected", what, p);
    if (!r.holds((uintptr_t)p, bytes)) return refuse(abi::InvalidValue, "%s: %zu bytes from byte %zu on of %s", what, bytes, (size_t)((uintptr_t)p - r.begin), r.name().c_str());
    (void)context;  // copies reach the memory of every device: addresses are unified
    return abi::Success;
  }
  if (side == Side::Device) return refuse(abi::InvalidValue, "%s: %p is no device memory", what, p);
  *pageable = !found || !r.holds((uintptr_t)p, bytes);
  return abi::Success;
}

static size_t extent(const Slab& s, const CopyWork& w) { return (w.depth - 1) * s.slice + (w.height - 1) * s.pitch + w.width; }

abi::Result lfsim::copy(Context* context, std::shared_ptr<CopyWork> w, Flow flow) {
  if (!w->width || !w->height || !w->depth) return abi::Success;
  bool dst_pageable, src_pageable;
  if (abi::Result r = check_memory(context, w->dst.base, extent(w->dst, *w), flow.dst, "destination of a copy", &dst_pageable)) return r;
  if (abi::Result r = check_memory(context, w->src.base, extent(w->src, *w), flow.src, "source of a copy", &src_pageable)) return r;
  if (!flow.async) {
    if (abi::Result r = unsafe("a synchronous copy")) return r;
    bool on_device = flow.dst == Side::Device && flow.src == Side::Device;
    return on_device ? submit(context, nullptr, w) : run_default(context, w);  // copies between devices do not wait
  }
  if (dst_pageable || src_pageable) {
    Lock lock(state().mu);
    std::shared_ptr<Stream> s;
    if (abi::Result r = stream_of(context, flow.stream, &s)) return r;
    if (s->capture) {
      s->capture->spoiled = true;
      return refuse(abi::StreamCaptureUnsupported, "a copy of pageable memory in a capture: it would wait");
    }
  }
  if (src_pageable && !dst_pageable) {
    auto from = static_cast<const char*>(w->src.base);
    w->staged = std::make_shared<std::vector<char>>(from, from + extent(w->src, *w));
    return submit(context, flow.stream, w);
  }
  auto mark = std::make_shared<Mark>();
  if (abi::Result r = submit(context, flow.stream, w, mark)) return r;
  if (dst_pageable) mark->stream->wait(mark->ticket);
  return sticky(context);
}

static abi::Result flat(const void* dst, const void* src, size_t bytes, Flow flow) {
  ENTER(context);
  auto w = std::make_shared<CopyWork>();
  w->dst.base = static_cast<char*>(const_cast<void*>(dst));
  w->src.base = static_cast<char*>(const_cast<void*>(src));
  w->width = bytes;
  return copy(context, w, flow);
}

static const void* at(abi::DevicePtr p) { return reinterpret_cast<const void*>((uintptr_t)p); }

LFSIM_API cuMemcpyHtoD_v2(abi::DevicePtr dst, const void* src, size_t n) { return flat(at(dst), src, n, {Side::Device, Side::Host, false}); }
LFSIM_API cuMemcpyDtoH_v2(void* dst, abi::DevicePtr src, size_t n) { return flat(dst, at(src), n, {Side::Host, Side::Device, false}); }
LFSIM_API cuMemcpyDtoD_v2(abi::DevicePtr dst, abi::DevicePtr src, size_t n) { return flat(at(dst), at(src), n, {Side::Device, Side::Device, false}); }
LFSIM_API cuMemcpy(abi::DevicePtr dst, abi::DevicePtr src, size_t n) { return flat(at(dst), at(src), n, {Side::Either, Side::Either, false}); }
LFSIM_API cuMemcpyHtoDAsync_v2(abi::DevicePtr dst, const void* src, size_t n, void* stream) { return flat(at(dst), src, n, {Side::Device, Side::Host, true, stream}); }
LFSIM_API cuMemcpyDtoHAsync_v2(void* dst, abi::DevicePtr src, size_t n, void* stream) { return flat(dst, at(src), n, {Side::Host, Side::Device, true, stream}); }
LFSIM_API cuMemcpyDtoDAsync_v2(abi::DevicePtr dst, abi::DevicePtr src, size_t n, void* stream) { return flat(at(dst), at(src), n, {Side::Device, Side::Device, true, stream}); }
LFSIM_API cuMemcpyAsync(abi::DevicePtr dst, abi::DevicePtr src, size_t n, void* stream) { return flat(at(dst), at(src), n, {Side::Either, Side::Either, true, stream}); }
LFSIM_API cuMemcpyPeer(abi::DevicePtr dst, void*, abi::DevicePtr src, void*, size_t n) { return flat(at(dst), at(src), n, {Side::Device, Side::Device, false}); }
LFSIM_API cuMemcpyPeerAsync(abi::DevicePtr dst, void*, abi::DevicePtr src, void*, size_t n, void* stream) { return flat(at(dst), at(src), n, {Side::Device, Side::Device, true, stream}); }

static bool side(int type, const void* host, abi::DevicePtr device, Side* s, const char** base) {
  switch (type) {
    case abi::MemoryHost:
      *s = Side::Host;
      *base = static_cast<const char*>(host);
      return true;
    case abi::MemoryDevice:
      *s = Side::Device;
      *base = static_cast<const char*>(at(device));
      return true;
    case abi::MemoryUnified:
      *s = Side::Either;
      *base = static_cast<const char*>(at(device));
      return true;
  }
  return false;
}

abi::Result lfsim::make_copy(Context*, const abi::Memcpy3D& c, std::shared_ptr<CopyWork>* work, Flow* flow) {
  const char *src, *dst;
  if (!side(c.src_type, c.src_host, c.src_device, &flow->src, &src) || !side(c.dst_type, c.dst_host, c.dst_device, &flow->dst, &dst)) {
    return refuse(abi::NotSupported, "copies of arrays are not simulated");
  }
  auto w = std::make_shared<CopyWork>();
  auto slab = [&](const char* base, size_t x, size_t y, size_t z, size_t pitch, size_t height) {
    Slab s;
    s.pitch = pitch ? pitch : c.width;
    s.slice = s.pitch * (height ? height : c.height);
    s.base = const_cast<char*>(base) + x + y * s.pitch + z * s.slice;
    return s;
  };
  w->src = slab(src, c.src_x, c.src_y, c.src_z, c.src_pitch, c.src_height);
  w->dst = slab(dst, c.dst_x, c.dst_y, c.dst_z, c.dst_pitch, c.dst_height);
  w->width = c.width, w->height = c.height, w->depth = c.depth;
  if (w->src.pitch < c.width || w->dst.pitch < c.width) return refuse(abi::InvalidValue, "a copy of rows of %zu bytes, pitches %zu and %zu", c.width, c.src_pitch, c.dst_pitch);
  *work = w;
  return abi::Success;
}

static abi::Result copy_3d(const abi::Memcpy3D& c, bool async, void* stream) {
  ENTER(context);
  std::shared_ptr<CopyWork> w;
  Flow flow{Side::Either, Side::Either, async, stream};
  if (abi::Result r = make_copy(context, c, &w, &flow)) return r;
  return copy(context, w, flow);
}

static abi::Memcpy3D widen(const abi::Memcpy2D& c) {
  abi::Memcpy3D d{};
  d.src_x = c.src_x, d.src_y = c.src_y, d.src_type = c.src_type, d.src_host = c.src_host, d.src_device = c.src_device, d.src_pitch = c.src_pitch;
  d.dst_x = c.dst_x, d.dst_y = c.dst_y, d.dst_type = c.dst_type, d.dst_host = c.dst_host, d.dst_device = c.dst_device, d.dst_pitch = c.dst_pitch;
  d.width = c.width, d.height = c.height, d.depth = 1;
  return d;
}

LFSIM_API cuMemcpy2D_v2(const abi::Memcpy2D* c) { return copy_3d(widen(*c), false, nullptr); }
LFSIM_API cuMemcpy2DUnaligned_v2(const abi::Memcpy2D* c) { return copy_3d(widen(*c), false, nullptr); }
LFSIM_API cuMemcpy2DAsync_v2(const abi::Memcpy2D* c, void* stream) { return copy_3d(widen(*c), true, stream); }
LFSIM_API cuMemcpy3D_v2(const abi::Memcpy3D* c) { return copy_3d(*c, false, nullptr); }
LFSIM_API cuMemcpy3DAsync_v2(const abi::Memcpy3D* c, void* stream) { return copy_3d(*c, true, stream); }

abi::Result lfsim::make_fill(Context* context, const abi::MemsetNodeParams& m, std::shared_ptr<FillWork>* work) {
  if (m.element != 1 && m.element != 2 && m.element != 4) return refuse(abi::InvalidValue, "a fill with elements of %u bytes: 1, 2 or 4", m.element);
  if (m.dst % m.element) return refuse(abi::InvalidValue, "a fill of %#llx with elements of %u bytes: the address does not lie on them", m.dst, m.element);
  auto w = std::make_shared<FillWork>();
  w->dst = static_cast<char*>(const_cast<void*>(at(m.dst)));
  w->pitch = m.pitch, w->width = m.width, w->height = m.height, w->value = m.value, w->element = m.element;
  if (m.width && m.height) {
    bool pageable;
    size_t bytes = (m.height - 1) * m.pitch + m.width * m.element;
    if (abi::Result r = check_memory(context, w->dst, bytes, Side::Device, "fill", &pageable)) return r;
  }
  *work = w;
  return abi::Success;
}

// Fills of device memory return at once, even the synchronous ones.
static abi::Result fill(abi::DevicePtr dst, size_t pitch, unsigned value, unsigned element, size_t width, size_t height, bool async, void* stream) {
  ENTER(context);
  if (!async) {
    if (abi::Result r = unsafe("a synchronous fill")) return r;
  }
  std::shared_ptr<FillWork> w;
  if (abi::Result r = make_fill(context, {dst, pitch, value, element, width, height}, &w)) return r;
  return submit(context, stream, w);
}

LFSIM_API cuMemsetD8_v2(abi::DevicePtr p, unsigned char v, size_t n) { return fill(p, 0, v, 1, n, 1, false, nullptr); }
LFSIM_API cuMemsetD16_v2(abi::DevicePtr p, unsigned short v, size_t n) { return fill(p, 0, v, 2, n, 1, false, nullptr); }
LFSIM_API cuMemsetD32_v2(abi::DevicePtr p, unsigned v, size_t n) { return fill(p, 0, v, 4, n, 1, false, nullptr); }
LFSIM_API cuMemsetD8Async(abi::DevicePtr p, unsigned char v, size_t n, void* s) { return fill(p, 0, v, 1, n, 1, true, s); }
LFSIM_API cuMemsetD16Async(abi::DevicePtr p, unsigned short v, size_t n, void* s) { return fill(p, 0, v, 2, n, 1, true, s); }
LFSIM_API cuMemsetD32Async(abi::DevicePtr p, unsigned v, size_t n, void* s) { return fill(p, 0, v, 4, n, 1, true, s); }
LFSIM_API cuMemsetD2D8_v2(abi::DevicePtr p, size_t pitch, unsigned char v, size_t w, size_t h) { return fill(p, pitch, v, 1, w, h, false, nullptr); }
LFSIM_API cuMemsetD2D16_v2(abi::DevicePtr p, size_t pitch, unsigned short v, size_t w, size_t h) { return fill(p, pitch, v, 2, w, h, false, nullptr); }
LFSIM_API cuMemsetD2D32_v2(abi::DevicePtr p, size_t pitch, unsigned v, size_t w, size_t h) { return fill(p, pitch, v, 4, w, h, false, nullptr); }
LFSIM_API cuMemsetD2D8Async(abi::DevicePtr p, size_t pitch, unsigned char v, size_t w, size_t h, void* s) { return fill(p, pitch, v, 1, w, h, true, s); }
LFSIM_API cuMemsetD2D16Async(abi::DevicePtr p, size_t pitch, unsigned short v, size_t w, size_t h, void* s) { return fill(p, pitch, v, 2, w, h, true, s); }
LFSIM_API cuMemsetD2D32Async(abi::DevicePtr p, size_t pitch, unsigned v, size_t w, size_t h, void* s) { return fill(p, pitch, v, 4, w, h, true, s); }
