package lora

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
)

// Digest identifies an adapter by its contents, independent of its name and location;
// see [Adapter.Digest].
type Digest [sha256.Size]byte

// String returns the digest as 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short returns the first 12 digits, enough to distinguish the versions of an adapter.
func (d Digest) Short() string { return d.String()[:12] }

// Digest returns the SHA-256 of the adapter's tensors and configuration. Tensors
// contribute key, element type, shape and bytes, in key order. The configuration
// contributes the settings that affect results, not the author, the name of the base
// model or the dropout of its training. The order of tensors and target modules in the
// files does not matter. In a [Registry] the digest also covers the chat template files
// in the adapter's folder, if any. Digest fails with safetensors.ErrFault if the file
// was truncated after it was opened.
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

// essence returns the part of the configuration that a digest covers, as JSON. It
// contains only keys that differ from PEFT's defaults, so that new keys of later PEFT
// versions leave existing digests unchanged.
func (c *Config) essence() []byte {
	d, normal := c.Clone(), newConfig(c.PeftType)
	normal.PeftType = DefaultConfig().PeftType
	d.PeftVersion, d.InferenceMode, d.LoraDropout, d.AutoMapping = normal.PeftVersion, normal.InferenceMode, normal.LoraDropout, normal.AutoMapping
	d.BaseModelNameOrPath, d.Revision = nil, nil
	if !d.IsClassifier() {
		d.TaskType = nil
	}
	if kind, _, err := d.InitLoraWeights.parse(); err == nil && kind != InitPiSSA && kind != InitOLoRA {
		d.InitLoraWeights = InitDefault // the others leave the base weights alone
	}
	var o object
	for _, f := range keysOf(c.PeftType) {
		if v := encode(f.at(d)); !reflect.DeepEqual(v, encode(f.at(normal))) {
			o = append(o, member{f.key, v})
		}
	}
	return appendJSON(nil, o, 0)
}
