package session

import (
	"strconv"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// partInputs holds the names of the inputs for one part of the rows of logits.
type partInputs struct {
	axis   string
	rows   string // i32 [m]: which of all rows they are
	to     string // i32 [m]: the same, or -1 for an unused row of padding
	labels string // i32 [m]: the first target of each, or -1 likewise
	places string // i32 [m·width]: of each target its logit, counted on over rows
}

var partNames = func() (all [mostParts]partInputs) {
	for i := range all {
		n := " " + strconv.Itoa(i)
		all[i] = partInputs{"logits" + n, "logit rows" + n, "logits to" + n, "logit labels" + n, "logit places" + n}
	}
	return all
}()

// inputsOf returns the input names of part i.
func inputsOf(i int) partInputs { return partNames[i] }

// feed holds the inputs of a program run: data as a batch of documents, and reusable arrays.
type feed struct {
	batch            data.Batch
	labels, adapters []int32
	targets          []int32
	parts            [mostParts]struct{ rows, to, labels, places []int32 }
	floats           [len(slopeInputs)][]float32
}

// set fills the feed with the next datum of each call.
func (f *feed) set(calls []*call, p kind, vocabulary int) {
	f.batch.Reset()
	f.labels, f.adapters, f.targets = f.labels[:0], f.adapters[:0], f.targets[:0]
	for j := range f.floats {
		f.floats[j] = f.floats[j][:0]
	}
	for number, c := range calls {
		d, at := c.datum(), len(f.labels)
		for i := range d.Tokens {
			f.labels, f.adapters = append(f.labels, d.Targets[i*p.width]), append(f.adapters, int32(number))
		}
		f.targets = append(f.targets, d.Targets...)
		f.batch.Add(d.Tokens, f.labels[at:])
		for i := range d.Targets {
			for j, x := range c.loss.slope(c.loss, d, i).fields() {
				f.floats[j] = append(f.floats[j], x)
			}
		}
	}
	for i := range p.parts() {
		f.part(p, i, vocabulary)
	}
	for j := range p.form.fields() {
		f.batch.SetFloats(slopeInputs[j], f.floats[j])
	}
	f.batch.SetInts(nn.Adapters, f.adapters)
}

// part sets the rows of part i of the logits.
func (f *feed) part(p kind, i, vocabulary int) {
	x, in := &f.parts[i], inputsOf(i)
	x.rows, x.to, x.labels, x.places = x.rows[:0], x.to[:0], x.labels[:0], x.places[:0]
	for row := i * p.rows; row < min(len(f.labels), (i+1)*p.rows); row++ {
		at := len(x.rows) * vocabulary
		x.rows, x.to, x.labels = append(x.rows, int32(row)), append(x.to, int32(row)), append(x.labels, f.labels[row])
		for _, id := range f.targets[row*p.width : (row+1)*p.width] {
			x.places = append(x.places, int32(at)+id)
		}
	}
	if len(x.rows) == 0 {
		x.rows, x.to, x.labels = append(x.rows, 0), append(x.to, -1), append(x.labels, -1)
		for range p.width {
			x.places = append(x.places, 0)
		}
	}
	f.batch.SetInts(in.rows, x.rows)
	f.batch.SetInts(in.to, x.to)
	f.batch.SetInts(in.labels, x.labels)
	f.batch.SetInts(in.places, x.places)
}

// Array implements nn.Arrays.
func (f *feed) Array(name string) ([]byte, bool) { return f.batch.Array(name) }
