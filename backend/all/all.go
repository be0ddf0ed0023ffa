// Package all brings in the backends of this build: the CPU always, the
// machines that need a driver by their build tags, and the null backend.
package all

import (
	_ "github.com/lorafuse/lorafuse/backend/cpu"  // always there
	_ "github.com/lorafuse/lorafuse/backend/null" // plans without hardware
)
