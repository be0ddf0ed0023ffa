package cache

import "errors"

// What can be wrong with an entry, for errors.Is. The errors name the entry's
// file.
var (
	// ErrMissing is the error for an entry that is not there and that nothing
	// was given to build it with.
	ErrMissing = errors.New("no such entry")
	// ErrStale is the error for an entry of another source, model or setting.
	ErrStale = errors.New("stale entry")
	// ErrCorrupt is the error for an entry that cannot be what was written.
	ErrCorrupt = errors.New("corrupt entry")
	// ErrUnkeyed is the error for an entry that does not say what it was made
	// of, as those of other programs do not.
	ErrUnkeyed = errors.New("entry without a key")
	// ErrOrphan is what Check finds of an entry whose source is gone.
	ErrOrphan = errors.New("entry without a source")
)

// What can be wrong with what is asked for.
var (
	// ErrOption is the error for options that make no sense.
	ErrOption = errors.New("invalid option")
	// ErrName is the error for two sources of one file name: they would share
	// an entry.
	ErrName = errors.New("entries go by the file name of their source")
	// ErrUTF8 is the error for a caption in another encoding.
	ErrUTF8 = errors.New("not valid UTF-8")
	// ErrTensor is the error for tensors of the wrong name, shape or dtype.
	ErrTensor = errors.New("not what the cache holds")
	// ErrChanging is the error for a source that is being written.
	ErrChanging = errors.New("changes while it is read")
)
