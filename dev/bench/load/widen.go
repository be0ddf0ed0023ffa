package load

import "github.com/lorafuse/lorafuse/tensor"

// opWiden opens a file of bf16 tensors and makes f32 of all of them, in memory
// that has been in use before.
func opWiden(t *task) (func() (func() error, error), error) {
	var wide []float32
	run := func() (func() error, error) {
		f, views, err := openAll(t.file)
		if err != nil {
			return nil, err
		}
		if wide == nil {
			elements := 0
			for _, v := range views {
				elements += v.Len() / 2
			}
			wide = make([]float32, elements)
		}
		rest := wide
		for _, v := range views {
			err := v.WithBytes(func(data []byte) error { return tensor.ToFloat32(rest[:len(data)/2], data, tensor.BF16) })
			if err != nil {
				return nil, err
			}
			rest = rest[v.Len()/2:]
		}
		return f.Close, nil
	}
	release, err := run()
	if err != nil {
		return nil, err
	}
	return run, release()
}
