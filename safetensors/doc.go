// Package safetensors reads and writes files in the safetensors format: a JSON
// header that names the tensors, then their bytes.
//
// [Open] maps a file and checks every rule of the format before it returns;
// after that a tensor costs no I/O until its bytes are touched. [OpenModel]
// and [OpenIndex] do the same for a model that is spread over shards.
// [WriteFile], [Write] and [WriteSharded] stream tensors out; the same tensors
// and metadata give the same bytes, which are those that the Hugging Face
// writer makes.
//
// # How long bytes live
//
// A mapping is memory that the garbage collector does not see. The bytes of a
// tensor are therefore reached in one of two ways:
//
//   - [View.Use] lends them to a function. The file cannot be closed in the
//     meantime, and a page that cannot be read (the file was cut short, the
//     network disk is gone) is an error, not a crash.
//   - [View.Bytes] and [As] hand them out. They are valid as long as the View
//     that gave them is reachable; whoever keeps the slice keeps the View, and
//     calls [runtime.KeepAlive] on it after the last access where nothing else
//     does. [File.Close] never unmaps such bytes; the garbage collector does,
//     after the last View is gone. An unreadable page crashes the program here.
//
// The bytes are read-only: writing to them crashes the program.
//
// Nothing protects against another process that overwrites the file in place:
// its bytes then show up in the tensors. Writers that replace the file, as this
// package's do, leave the mapping of the old one untouched.
//
// # Writing
//
// A file is the same, byte for byte, as that of the Hugging Face writer for the
// same tensors and up to one key of metadata; the order of more is random there
// and sorted here. In a folder of shards the index is the same, too. The
// libraries differ in that, so it is the one of the library that the stem
// belongs to: transformers counts parameters beside bytes, sorts and ends the
// last line (model), diffusers does not count (diffusion_pytorch_model),
// huggingface_hub keeps the order of the tensors and does not end the line (any
// other stem).
//
// While a file or a model is being replaced, and wherever the program ends,
// readers find the old one or the new one. [Durable] extends that to crashes of
// the machine.
//
// # Errors
//
// Every rule of the format has an error of its own, for use with [errors.Is];
// what is wrong with a file is a [*FormatError] that says where, what was found
// and what was expected.
package safetensors
