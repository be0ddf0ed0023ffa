// Libraries, functions and pipelines: shaders by the host compiler.
#import "fake.h"

#include <stdlib.h>
#include <string.h>

NSString *const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

@implementation MTLCompileOptions
- (id)init {
  if ((self = [super init])) _mathMode = MTLMathModeFast;
  return self;
}
- (void)dealloc {
  [_preprocessorMacros release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone *)zone {
  MTLCompileOptions *o = [[MTLCompileOptions allocWithZone:zone] init];
  o.preprocessorMacros = _preprocessorMacros;
  o.languageVersion = _languageVersion;
  o.mathMode = _mathMode;
  return o;
}
- (NSDictionary *)preprocessorMacros {
  return _preprocessorMacros;
}
- (void)setPreprocessorMacros:(NSDictionary *)macros {
  if (macros == _preprocessorMacros) return;
  [_preprocessorMacros release];
  _preprocessorMacros = [macros copy];
}
- (MTLLanguageVersion)languageVersion {
  return _languageVersion;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version {
  _languageVersion = version;
}
- (MTLMathMode)mathMode {
  return _mathMode;
}
- (void)setMathMode:(MTLMathMode)mode {
  _mathMode = mode;
}
- (BOOL)fastMathEnabled {
  return _mathMode == MTLMathModeFast;
}
- (void)setFastMathEnabled:(BOOL)on {
  _mathMode = on ? MTLMathModeFast : MTLMathModeSafe;
}
@end

// macros_of returns NAME=VALUE for all macros that the compiler defines: the
// program's, and the ones implied by device and options.
static NSArray *macros_of(MTLCompileOptions *options, MTLLanguageVersion version, LFDevice *device) {
  NSMutableArray *all = [NSMutableArray array];
  for (NSString *name in [[options.preprocessorMacros allKeys] sortedArrayUsingSelector:@selector(compare:)]) {
    id value = [options.preprocessorMacros objectForKey:name];
    if (![value isKindOfClass:[NSString class]] && ![value isKindOfClass:[NSNumber class]])
      lf_die("preprocessorMacros: %s is neither a string nor a number", [name UTF8String]);
    [all addObject:[NSString stringWithFormat:@"%@=%@", name, value]];
  }
  [all addObject:[NSString stringWithFormat:@"__METAL_VERSION__=%u", (unsigned)((version >> 16) * 100 + (version & 0xffff) * 10)]];
  if (!options || options.mathMode == MTLMathModeFast) [all addObject:@"__FAST_MATH__=1"];
  if (![device supportsFamily:MTLGPUFamilyApple7]) [all addObject:@"__LF_NO_SIMD=1"];
  BOOL bfloat = version >= MTLLanguageVersion3_1 && ([device supportsFamily:MTLGPUFamilyApple6] || [device supportsFamily:MTLGPUFamilyMetal3]);
  if (!bfloat) [all addObject:@"__LF_NO_BFLOAT=1"];
  return all;
}

@implementation LFLibrary
+ (LFLibrary *)compile:(NSString *)source options:(MTLCompileOptions *)options device:(LFDevice *)device error:(NSError **)error {
  if (!source) lf_die("newLibraryWithSource: nil");
  NSError *wrong = nil;
  lf_msl *shaders = NULL;
  MTLLanguageVersion highest = device->settings.language;
  MTLLanguageVersion version = options.languageVersion ? options.languageVersion : highest;
  if (lf_injected(device->settings.failures, "library", "")) {
    wrong = lf_error(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, "program_source:1:1: error: injected by LFSIM_METAL_FAIL");
  } else if (version > highest) {
    wrong = lf_error(MTLLibraryErrorDomain, MTLLibraryErrorUnsupported, "language version %u.%u is not supported, the highest is %u.%u",
                     (unsigned)(version >> 16), (unsigned)(version & 0xffff), (unsigned)(highest >> 16), (unsigned)(highest & 0xffff));
  } else {
    NSArray *macros = macros_of(options, version, device);
    int count = (int)[macros count];
    const char **texts = calloc((size_t)count, sizeof *texts);
    for (int i = 0; i < count; i++) texts[i] = [[macros objectAtIndex:(NSUInteger)i] UTF8String];
    const char *text = [source UTF8String];
    char *message = NULL;
    shaders = lf_msl_compile(text, strlen(text), texts, count, &message);
    free(texts);
    if (!shaders) wrong = lf_error(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, "%s", message ? message : "?");
    free(message);
  }
  if (!shaders) {
    if (error) *error = wrong;
    return nil;
  }
  LFLibrary *l = [[LFLibrary alloc] initWithKind:LF_LIBRARY device:device];
  l->shaders = shaders;
  return l;
}
- (void)dealloc {
  lf_msl_free(shaders);
  [super dealloc];
}
- (NSArray *)functionNames {
  NSMutableArray *names = [NSMutableArray array];
  for (int i = 0; i < lf_msl_count(shaders); i++) [names addObject:[NSString stringWithUTF8String:lf_msl_name(shaders, i)]];
  return names;
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
  if (!name) lf_die("newFunctionWithName: nil");
  for (int i = 0; i < lf_msl_count(shaders); i++) {
    if (strcmp(lf_msl_name(shaders, i), [name UTF8String])) continue;
    LFFunction *f = [[LFFunction alloc] initWithKind:LF_FUNCTION device:device];
    f->library = [self retain];
    f->kernel = i;
    return f;
  }
  return nil;
}
@end

@implementation LFFunction
- (void)dealloc {
  [library release];
  [super dealloc];
}
- (NSString *)name {
  return [NSString stringWithUTF8String:lf_msl_name(library->shaders, kernel)];
}
@end

@implementation LFPipeline
+ (LFPipeline *)of:(LFFunction *)function error:(NSError **)error {
  const char *name = lf_msl_name(function->library->shaders, function->kernel);
  lf_msl_info about = lf_msl_about(function->library->shaders, function->kernel);
  NSError *wrong = nil;
  if (lf_injected(function->device->settings.failures, "pipeline", name)) {
    wrong = lf_error(@"CompilerError", 2, "%s: injected by LFSIM_METAL_FAIL", name);
  } else if (about.shared > LF_MOST_THREADGROUP_MEMORY) {
    wrong = lf_error(@"CompilerError", 2, "%s: %zu bytes of threadgroup memory, the device has %d", name, about.shared, LF_MOST_THREADGROUP_MEMORY);
  } else if (about.threads > LF_MOST_THREADS) {
    wrong = lf_error(@"CompilerError", 2, "%s: max_total_threads_per_threadgroup(%u), the device has %d", name, about.threads, LF_MOST_THREADS);
  }
  if (wrong) {
    if (error) *error = wrong;
    return nil;
  }
  LFPipeline *p = [[LFPipeline alloc] initWithKind:LF_PIPELINE device:function->device];
  p->library = [function->library retain];
  p->kernel = function->kernel;
  p->name = name;
  p->about = about;
  return p;
}
- (void)dealloc {
  [library release];
  [super dealloc];
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return about.threads ? about.threads : LF_MOST_THREADS;
}
- (NSUInteger)threadExecutionWidth {
  return 32;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return about.shared;
}
@end
