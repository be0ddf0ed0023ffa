// GNUstep's headers ask for this name where blocks are on.
#include <Block.h>
