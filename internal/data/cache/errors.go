package cache

import "errors"

// Errors about entries, for errors.Is. Their messages name the file.
var (
	// ErrMissing is the error for an entry that does not exist and cannot be built.
	ErrMissing = errors.New("no such entry")
	// ErrStale is the error for an entry of another source, model or setting.
	ErrStale = errors.New("stale entry")
	// ErrCorrupt is the error for a damaged entry.
	ErrCorrupt = errors.New("corrupt entry")
	// ErrUnkeyed is the error for an entry without a key, written by another program.
	ErrUnkeyed = errors.New("entry without a key")
	// ErrOrphan is the error for an entry whose source no longer exists.
	ErrOrphan = errors.New("entry without a source")
)

// Errors about arguments and sources.
var (
	// ErrOption is the error for invalid options.
	ErrOption = errors.New("invalid option")
	// ErrName is the error for two sources with the same file name, which would share an entry.
	ErrName = errors.New("entries go by the file name of their source")
	// ErrUTF8 is the error for a caption that is not UTF-8.
	ErrUTF8 = errors.New("not valid UTF-8")
	// ErrTensor is the error for tensors of the wrong name, shape or dtype.
	ErrTensor = errors.New("not what the cache holds")
	// ErrChanging is the error for a source that changes while it is read.
	ErrChanging = errors.New("changes while it is read")
)
