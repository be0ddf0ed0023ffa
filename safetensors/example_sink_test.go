package safetensors_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/safetensors"
)

// This example implements a device with a few slots of memory: it copies from
// full slots while others are being read.
func ExampleSink() {
	f, err := safetensors.OpenModel("../testdata/lm/qwen2/model-sharded")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	views, err := f.Views()
	if err != nil {
		fmt.Println(err)
		return
	}
	d := &device{slots: make(chan []byte, 2)}
	for range cap(d.slots) {
		d.slots <- make([]byte, 64<<10)
	}
	_, err = safetensors.Load(context.Background(), views, d, safetensors.LoadOptions{ChunkSize: 64 << 10})
	fmt.Println(d.bytes.Load(), err)
	// Output:
	// 428288 <nil>
}

type device struct {
	slots chan []byte
	bytes atomic.Int64
}

func (d *device) Slot(ctx context.Context, c *safetensors.Chunk) ([]byte, error) {
	select {
	case slot := <-d.slots:
		return slot, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *device) Done(c *safetensors.Chunk, data []byte) error {
	for _, p := range c.Parts {
		// data[p.At:][:p.Length] belongs at byte p.From of views[p.View].
		d.bytes.Add(p.Length)
	}
	d.slots <- data[:cap(data)]
	return nil
}
