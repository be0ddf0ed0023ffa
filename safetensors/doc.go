// Package safetensors reads and writes files in the safetensors format: a JSON
// header that describes the tensors, followed by their bytes.
//
// [Open] maps a file and checks every rule of the format before it returns; after
// that a tensor costs no I/O until its bytes are touched. [OpenModel] and
// [OpenIndex] do the same for a model that is split into shards. [WriteFile],
// [Write] and [WriteSharded] write tensors. The same tensors and metadata always
// give the same bytes, identical to the output of the Hugging Face writer.
//
// Files that are not local are read on demand, one tensor at a time:
// [OpenReaderAt] opens any [io.ReaderAt], [OpenFS] a file of any [io/fs.FS], and
// package remote a file served over HTTP. [OpenExternal] opens tensors in files of
// other formats. Their views have the same methods as the views of mapped files;
// see [View] for the cost of each.
//
// # Loading
//
// [Load] copies many tensors, from many files, to a [Sink]: host memory, or a
// device's ring of pinned slots. [PlanLoad] cuts the files into page-aligned
// chunks, which several readers load in parallel. The read strategy depends on
// how much of a file is in the page cache and on which strategy turns out to be
// fastest; [LoadStats] reports the choice. [LoadHost] makes a private copy in
// memory. [Populate] only makes the pages of a mapping resident before they are
// needed.
//
// # How long bytes live
//
// Mapped memory is not managed by the garbage collector, so the bytes of a tensor
// are accessed in one of these ways:
//
//   - [View.WithBytes] lends them to a function. The file cannot be closed while the
//     function runs.
//   - [View.Hold] lends them until [Hold.Release]. Until then [File.Close] fails
//     with ErrInUse and reports the number of uses and holds.
//   - [View.Bytes] and [As] return them. They are valid as long as the View is
//     reachable: keep the View together with the slice, and call
//     [runtime.KeepAlive] on it after the last access if nothing else refers to
//     it. Close never unmaps such bytes; the garbage collector does after the
//     last View is gone.
//   - [Read], [View.ReadAt] and similar functions copy them; [View.WriteTo]
//     writes them to an io.Writer. Read also converts the byte order and accepts
//     any alignment.
//
// The bytes are read-only: writing to them crashes the program.
//
// # Files that change
//
// If a file is truncated while it is open, or its disk or network fails, the
// result depends on how the bytes are accessed:
//
//	Open, Lookup                  the header was read and checked once; no effect
//	WithBytes                     ErrFault for reads by the function itself,
//	                              a crash for reads by its goroutines
//	ReadAt, Read, ReadInto,       ErrFault
//	Slice.ReadInto and ReadAt
//	WriteTo, and writers of the   ErrFault, whether w copies the bytes itself
//	Entry                         or has the system copy them
//	Bytes, As, Hold of a mapping  a crash of the program that touches them
//	anything of a file that is    ErrFault, with the error of the reader
//	not mapped
//
// On Windows a mapped file cannot be truncated or replaced: the program that
// tries gets the error.
//
// If a mapped file is overwritten in place, its tensors show the new bytes. This
// is not detected, because checking would cost as much as reading. Writers that
// replace the file, such as the ones in this package, leave the mapping of the
// old file untouched. Package remote does detect changes: all bytes that it reads
// come from one version of a file, or the read fails.
//
// # Writing
//
// A file is identical, byte for byte, to the output of the Hugging Face writer
// for the same tensors and at most one metadata key. With several keys their
// order is random there and sorted here. The index of a sharded model is
// identical too. Since the libraries write different indexes, the stem selects
// the library: transformers (model) adds the parameter count to the byte count,
// sorts the names and ends the last line; diffusers (diffusion_pytorch_model)
// does not count parameters; huggingface_hub (any other stem) keeps the order of
// the tensors and does not end the last line.
//
// While a file or a model is replaced, readers find either the old one or the new
// one, even if the program is killed. [Durable] extends this guarantee to crashes
// of the machine.
//
// # Errors
//
// Every rule of the format has its own error for use with [errors.Is]. A file
// that breaks a rule gives a [*FormatError] with the location, the value found
// and the value expected. For a file of another format it also names the format,
// as guessed by [Recognize], and the function that opens it.
package safetensors
