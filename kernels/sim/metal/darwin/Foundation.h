// Declarations of the parts of Foundation that backend/metal uses, for a type
// check on machines without Apple's headers: scripts/check_darwin.sh. Names and
// types are Apple's.
#pragma once
#include <objc/objc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef struct _NSZone NSZone;
typedef struct _NSRange {
  NSUInteger location, length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) { return (NSRange){location, length}; }

@class NSString, NSDictionary, NSError, NSArray, NSNumber, NSURL;

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (NSString *)description;
- (BOOL)respondsToSelector:(SEL)selector;
@end
@protocol NSCopying
- (id)copyWithZone:(NSZone *)zone;
@end

__attribute__((objc_root_class)) @interface NSObject<NSObject> {
  Class isa;
}
+ (id)alloc;
+ (id)new;
- (id)init;
- (id)copy;
- (void)dealloc;
@end

@interface NSString : NSObject<NSCopying>
+ (id)stringWithUTF8String:(const char *)text;
- (id)initWithBytes:(const void *)bytes length:(NSUInteger)length encoding:(NSUInteger)encoding;
@property(readonly) const char *UTF8String;
@end
enum { NSUTF8StringEncoding = 4 };

@interface NSNumber : NSObject<NSCopying>
+ (id)numberWithInt:(int)value;
+ (id)numberWithUnsignedInteger:(NSUInteger)value;
@end

@interface NSDictionary : NSObject<NSCopying>
+ (id)dictionaryWithObject:(id)object forKey:(id)key;
+ (id)dictionaryWithObjects:(const id *)objects forKeys:(const id *)keys count:(NSUInteger)count;
@end

@interface NSArray : NSObject
@property(readonly) NSUInteger count;
- (id)objectAtIndex:(NSUInteger)index;
@end

@interface NSError : NSObject
@property(readonly) NSString *domain;
@property(readonly) NSString *localizedDescription;
@property(readonly) NSInteger code;
@end
