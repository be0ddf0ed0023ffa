package torchfile_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

// This example reads a training checkpoint: the model, its optimizer and the
// epoch.
func Example() {
	f, err := torchfile.Open("testdata/read/sgd.pt")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(name, v.DType, v.Shape)
	}
	scalars, err := torchfile.Scalars("testdata/read/sgd.pt")
	fmt.Println("epoch", scalars["epoch"], "lr", scalars["optimizer.param_groups.0.lr"], err)
	// Output:
	// model.weight F32 [2 3]
	// model.bias F32 [2]
	// optimizer.state.0.momentum_buffer F32 [2 3]
	// optimizer.state.1.momentum_buffer F32 [2]
	// epoch 3 lr 0.1 <nil>
}

// This example opens the PyTorch file if the safetensors file does not exist.
func ExampleOpenAny() {
	f, source, err := torchfile.OpenAny("testdata/read/embeddings.safetensors")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(source.Format, source.Fallback)

	_, _, err = torchfile.OpenAny("testdata/refused/evil_eval.pt")
	fmt.Println(err)
	// Output:
	// safetensors false
	// torchfile: testdata/refused/evil_eval.pt: archive/data.pkl: global is not allowed at byte 13 (GLOBAL): found "builtins.eval", expected tensors in dicts and lists only; in Python, save model.state_dict() and no other objects
}

// This example converts a checkpoint to a safetensors file.
func ExampleOpen_convert() {
	f, err := torchfile.Open("testdata/read/views.pt")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		entries = append(entries, v.Entry())
	}
	fmt.Println(len(entries), safetensors.Write(discard{}, entries, f.Metadata()))
	// Output: 20 <nil>
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
