//go:build cgo && (darwin || (metal && metalfake))

package all

import _ "github.com/lorafuse/lorafuse/backend/metal" // Apple GPUs
