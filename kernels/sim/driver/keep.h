// LFSIM_KEEP=FOLDER keeps launches for the race detector, which cannot watch
// the programs that make them: "race --repeat FOLDER/*" runs them again.
#pragma once
#include "work.h"

namespace lfsim {

// keep writes FOLDER/KERNEL for the first launch of a kernel that the detector can
// follow, and again for each that is more worth its time than the one that is
// there. FOLDER/KERNEL.seen says that there was a launch of any size.
void keep(const KernelWork& work);

}  // namespace lfsim
