//go:build !unix

package safetensors

import "os"

// keepsOpen is false: a file must be closed before it is renamed.
const keepsOpen = false

func flushOnClose(*os.File) error { return nil }

// syncFolder does nothing: folders cannot be synced.
func syncFolder(string) error { return nil }
