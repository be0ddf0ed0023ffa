#include "image.h"

#include <string.h>

#include <sstream>

namespace lfsim {

namespace {

constexpr uint32_t fatbin_magic = 0xba55ed50, elf_magic = 0x464c457f;

template <class T>
T read(const char* p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}

// Header of a fat binary, and of the programs in it.
struct FatHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
};
struct FatEntry {
  uint16_t kind, version;
  uint32_t header_size;
  uint64_t size;
  uint32_t compressed, unknown;
  uint16_t minor, major;
  uint32_t arch;
};
enum : uint16_t { kind_ptx = 1, kind_cubin = 2 };

// The attributes of .nv.info that are of use here.
enum : uint8_t { format_sized = 4, attribute_max_threads = 0x05, attribute_param = 0x17 };

void read_info(const char* p, size_t n, Entry* e) {
  for (size_t i = 0; i + 4 <= n;) {
    uint8_t format = (uint8_t)p[i], attribute = (uint8_t)p[i + 1];
    uint16_t size = read<uint16_t>(p + i + 2);
    i += 4;
    if (format != format_sized) continue;
    if (i + size > n) return;
    if (attribute == attribute_max_threads && size >= 12) {
      e->max_threads = read<uint32_t>(p + i) * read<uint32_t>(p + i + 4) * read<uint32_t>(p + i + 8);
    } else if (attribute == attribute_param && size >= 12) {
      e->params[read<uint16_t>(p + i + 4)] = read<uint32_t>(p + i + 8) >> 18;
    }
    i += size;
  }
}

// read_cubin finds the kernels by their sections: .text.NAME, .nv.info.NAME
// and .nv.shared.NAME.
void read_cubin(const char* p, Image* image) {
  uint64_t table = read<uint64_t>(p + 40);
  uint16_t size = read<uint16_t>(p + 58), count = read<uint16_t>(p + 60), names = read<uint16_t>(p + 62);
  auto section = [&](unsigned i) { return p + table + (size_t)i * size; };
  const char* strings = p + read<uint64_t>(section(names) + 24);
  auto suffix = [](const char* s, const char* prefix) { return strncmp(s, prefix, strlen(prefix)) ? nullptr : s + strlen(prefix); };
  image->complete = image->cubin = true;
  for (unsigned i = 0; i < count; i++) {
    const char* name = strings + read<uint32_t>(section(i));
    const char* data = p + read<uint64_t>(section(i) + 24);
    uint64_t bytes = read<uint64_t>(section(i) + 32);
    if (const char* kernel = suffix(name, ".text.")) image->entries[kernel];
    if (const char* kernel = suffix(name, ".nv.info.")) read_info(data, bytes, &image->entries[kernel]);
    if (const char* kernel = suffix(name, ".nv.shared.")) image->entries[kernel].shared = (unsigned)bytes;
  }
}

// read_ptx reads the names after ".entry".
void read_ptx(const std::string& text, Image* image) {
  std::istringstream words(text);
  for (std::string w; words >> w;) {
    if (w == ".entry" && words >> w) image->entries[w.substr(0, w.find('('))];
  }
  image->complete = true;
}

abi::Result read_fatbin(const char* p, int major, int minor, Image* image, std::string* why) {
  auto header = read<FatHeader>(p);
  int device = major * 10 + minor;
  const char *cubin = nullptr, *ptx = nullptr;
  FatEntry best{}, best_ptx{};
  std::string offered;
  for (uint64_t at = header.header_size; at + sizeof(FatEntry) <= header.header_size + header.size;) {
    auto e = read<FatEntry>(p + at);
    int arch = (int)e.arch;
    offered += (offered.empty() ? "" : ", ") + std::string(e.kind == kind_ptx ? "compute_" : "sm_") + std::to_string(arch);
    // Machine code runs on its major version from its minor version up, PTX on all later ones.
    if (e.kind == kind_cubin && arch / 10 == major && arch <= device && (!cubin || arch > (int)best.arch)) cubin = p + at + e.header_size, best = e;
    if (e.kind == kind_ptx && arch <= device && (!ptx || arch > (int)best_ptx.arch)) ptx = p + at + e.header_size, best_ptx = e;
    at += e.header_size + e.size;
  }
  if (cubin && read<uint32_t>(cubin) == elf_magic) {
    read_cubin(cubin, image);
  } else if (!cubin && ptx && !best_ptx.compressed) {
    read_ptx(std::string(ptx, strnlen(ptx, best_ptx.size)), image);
  } else if (!cubin && !ptx) {
    *why = "no code for sm_" + std::to_string(device) + " in the image, which has " + offered;
    return abi::NoBinaryForGpu;
  }
  return abi::Success;
}

}  // namespace

abi::Result parse_image(const void* data, int major, int minor, Image* image, std::string* why) {
  auto* p = static_cast<const char*>(data);
  auto magic = read<uint32_t>(p);
  if (magic == fatbin_magic) return read_fatbin(p, major, minor, image, why);
  if (magic == elf_magic) {
    read_cubin(p, image);
    return abi::Success;
  }
  std::string text(p, strnlen(p, 64 << 20));
  if (text.compare(0, 6, "LFSIM\n") == 0) {
    std::istringstream names(text.substr(6));
    for (std::string name; names >> name;) image->entries[name];
    image->complete = true;
    return abi::Success;
  }
  if (text.find(".version") != std::string::npos && text.find(".target") != std::string::npos) {
    read_ptx(text, image);
    return abi::Success;
  }
  *why = "the image is neither a fat binary, a cubin, PTX, nor a list of names behind LFSIM";
  return abi::InvalidImage;
}

}  // namespace lfsim
