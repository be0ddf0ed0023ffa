package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/catalog"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// modelReport is the output of `inspect` for a model.
type modelReport struct {
	Architecture string `json:"architecture,omitempty"`
	ModelType    string `json:"model_type,omitempty"`
	Parameters   int    `json:"parameters,omitempty"`
	Layers       int    `json:"layers,omitempty"`
	HiddenSize   int    `json:"hidden_size,omitempty"`
	VocabSize    int    `json:"vocab_size,omitempty"`
	MaxPositions int    `json:"max_position_embeddings,omitempty"`
	Quantized    string `json:"quantized,omitempty"` // how weights are stored
	codes        map[string]string
	Tied         bool `json:"tie_word_embeddings,omitempty"`

	Classes []string `json:"classes,omitempty"` // of a classifier
	Problem string   `json:"problem_type,omitempty"`

	Can       *catalog.Row `json:"can,omitempty"` // the row of docs/models.md
	Supported bool         `json:"supported"`
	Reason    string       `json:"reason,omitempty"` // why it is not supported
	// Unused lists tensors of the checkpoint that the model does not read. Absent lists tensors that the index names
	// but no shard contains.
	Unused []string `json:"unused,omitempty"`
	Absent []string `json:"absent,omitempty"`
	unread string   // the tensors of Unused, with reasons
}

// inspectModel reports whether the model can be used. An unusable model is not an error, nor is one without weights,
// for which set is nil.
func (i *inspection) inspectModel(set *weights.Set) {
	r := &modelReport{}
	i.Model = r
	if set != nil {
		r.Absent = set.Absent()
	}
	m, err := model.Open(i.Path)
	if err != nil {
		r.Reason = err.Error()
		return
	}
	defer m.Close()
	c := m.Config
	*r = modelReport{
		Architecture: c.Architecture, ModelType: c.ModelType, Parameters: m.Parameters(), Layers: c.Layers,
		HiddenSize: c.HiddenSize, VocabSize: c.VocabSize, MaxPositions: c.MaxPositions, Tied: c.TiedEmbeddings,
		Quantized: m.Quantization().Storage(), Supported: true, Absent: r.Absent,
	}
	if c.ModelType != "" {
		row := catalog.Of(c.Architecture)
		r.Can = &row
	}
	if c.Part == model.Classifier {
		r.Classes, r.Problem = c.Classes.Names, string(c.Classes.Means())
	}
	r.codes = map[string]string{}
	if q := m.Quantization(); q.Stored && q.Tool == "" {
		kind := string(quant.Int8) // also where all of them are widened
		if q.Float8 {
			kind = string(quant.Fp8)
		} else if q.DType.Quantized() {
			kind = quant.Name(q.DType)
		}
		for _, name := range slices.Concat(q.Weights, q.Widened) {
			if w, err := m.Weight(name); err == nil {
				r.codes[name] = fmt.Sprintf("%s %v", kind, w.Shape)
			}
		}
	}
	r.unread = model.UnreadByReason(m.Unread())
	for _, u := range m.Unread() {
		r.Unused = append(r.Unused, u.Name)
	}
}

func (r *modelReport) rows() [][]string {
	if !r.Supported {
		return [][]string{{"supported", "no: " + oneLine(r.Reason)}}
	}
	tied := ""
	if r.Tied {
		tied = ", tied embeddings"
	}
	rows := [][]string{{"supported", "yes: " + r.Architecture}}
	if r.Can != nil {
		rows = append(rows, []string{"can", r.Can.String()})
	}
	rows = append(rows, [][]string{
		{"parameters", fmt.Sprintf("%d in %d layers of width %d", r.Parameters, r.Layers, r.HiddenSize)},
		{"vocabulary", fmt.Sprintf("%d tokens%s", r.VocabSize, tied)},
		{"positions", fmt.Sprint(r.MaxPositions)},
	}...)
	if len(r.Classes) > 0 {
		rows = append(rows, classesRow(r.Classes, r.Problem))
	}
	if r.Quantized != "" {
		rows = append(rows, []string{"quantized", r.Quantized})
	}
	for _, row := range [][]string{{"unused", r.unread}, {"absent", strings.Join(r.Absent, ", ")}} {
		if row[1] != "" {
			rows = append(rows, []string{row[0], oneLine(row[1])})
		}
	}
	return rows
}

// classesRow describes the classes of a classifier.
func classesRow(names []string, problem string) []string {
	return []string{"classes", oneLine(fmt.Sprintf("%d, %s: %s", len(names), problem, strings.Join(names, ", ")))}
}
