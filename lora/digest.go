package lora

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
)

// Digest identifies an adapter by what it computes with, whatever it is called and
// wherever it lies; see [Adapter.Digest].
type Digest [sha256.Size]byte

// String is the digest in 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short is the first 12 digits, which tell the versions of an adapter apart.
func (d Digest) Short() string { return d.String()[:12] }

// Digest is the SHA-256 of the tensors, each with key, element type, shape and
// bytes, in the order of the keys, and of the configuration as far as what the
// adapter computes depends on it: neither on who wrote it, nor on the base model's
// name, nor on the dropout of its training. The order in which a file lists tensors
// and target modules changes nothing. In a [Registry] it also covers the files of the chat
// template that lies beside the adapter, if there is one. It fails with safetensors.ErrFault where the
// file has been cut short since it was opened.
func (a *Adapter) Digest() (Digest, error) {
	h := sha256.New()
	write := func(part []byte) { // its length first, so that parts cannot run into one another
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	write([]byte("lorafuse adapter 1"))
	write(a.Config.essence())
	if a.template != nil {
		write(a.templateText)
	}
	err := reading(func() error {
		for _, key := range slices.Sorted(slices.Values(a.names)) {
			t := a.tensors[key]
			write([]byte(key))
			write(fmt.Appendf(nil, "%v %v", t.DType, t.Shape))
			write(t.Data)
		}
		return nil
	})
	if err != nil {
		return Digest{}, fmt.Errorf("lora: %s%w", a.where(), err)
	}
	return Digest(h.Sum(nil)), nil
}

// essence is the part of the configuration that a digest covers, as JSON: the keys
// that differ from PEFT's defaults, so that keys of later versions of PEFT do not
// change what has none of them.
func (c *Config) essence() []byte {
	d, normal := c.Clone(), DefaultConfig()
	d.PeftVersion, d.InferenceMode, d.LoraDropout, d.AutoMapping = normal.PeftVersion, normal.InferenceMode, normal.LoraDropout, normal.AutoMapping
	d.BaseModelNameOrPath, d.Revision = nil, nil
	if !d.Classifies() {
		d.TaskType = nil
	}
	if kind, _, err := d.InitLoraWeights.parse(); err == nil && kind != InitPiSSA && kind != InitOLoRA {
		d.InitLoraWeights = InitDefault // the others leave the base weights alone
	}
	var o object
	for _, f := range fields {
		if v := encode(f.at(d)); !reflect.DeepEqual(v, encode(f.at(normal))) {
			o = append(o, member{f.key, v})
		}
	}
	return appendJSON(nil, o, 0)
}
