// Package torchfile reads the tensors of files written by PyTorch's torch.save
// (.pt, .pth, .bin, .ckpt) as files of package safetensors, without executing
// anything in them.
//
// [Open] reads one file. [OpenAny] opens a safetensors file, or a PyTorch file if
// it does not exist; package weights does the same for folders and indexes.
// [Scalars] returns the values in a checkpoint that are not tensors. [Verify]
// compares checksums.
//
// # Supported files
//
// Both formats of torch.save are supported: zip archives (since PyTorch 1.6),
// stored or deflated, in either byte order, even larger than 4 GiB; and the older
// legacy format (since 0.1.10). The object may consist of dicts, lists and tuples,
// nested to any depth, of dense tensors: state dicts with or without _metadata,
// parameters, optimizers, embedding caches, single tensors. Tensors may be views
// with strides and share storages. All element types of safetensors are supported.
// Complex128 and similar types, quantized, sparse and meta tensors, TorchScript
// archives and the tar archives written before 0.1.10 are reported as unsupported.
//
// # Safety
//
// A checkpoint is a pickle, a program for a machine that can call any function.
// The machine in this package knows lists, dicts, numbers, strings and the few
// PyTorch functions that construct a tensor. It does not call those functions, but
// records a description of their results. It accepts the pickles that torch.load
// accepts under weights_only, and also the equivalent opcodes of protocols 4 and
// 5, which torch.load then rejects. Any other opcode or global is an error with
// its name and position.
//
// Sizes are checked before memory is allocated: lengths of strings against the
// rest of the pickle, numbers of elements against the length of the record, views
// against their storage, and records against the file and each other. The values
// of a pickle may use about 256 MiB and the names of tensors 100 MB; lists may be
// nested 1000 deep. Opening takes time proportional to the size of the pickle.
package torchfile
