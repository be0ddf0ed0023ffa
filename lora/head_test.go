package lora_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// encoder is a classifier with the head of RoBERTa.
func encoder() lora.Model {
	linear := func(name string) lora.Module {
		return lora.Module{Name: name, Kind: lora.Linear, In: 4, Out: 4, Bias: true}
	}
	return lora.Model{Type: "roberta", Modules: []lora.Module{
		linear("roberta.encoder.layer.0.attention.self.query"), linear("roberta.encoder.layer.0.output.dense"),
		linear("classifier.dense"), linear("classifier.out_proj"),
	}}
}

// The head of a classifier is saved whole, as PeftModelForSequenceClassification has it,
// and gets no adapter, whatever is targeted.
func TestSequenceClassification(t *testing.T) {
	p := place(t, `"target_modules":["query","dense"],"task_type":"SEQ_CLS","modules_to_save":["score"]`, encoder())
	require.NoError(t, p.CheckUsed(), "a model has one of the heads")
	assert.Equal(t, []string{"score", "classifier"}, p.Config().ModulesToSave)
	var keys []string
	for _, s := range p.Tensors() {
		if s.Role == lora.RoleSaved {
			keys = append(keys, s.Key)
		}
	}
	assert.Equal(t, []string{
		"base_model.model.classifier.dense.weight", "base_model.model.classifier.dense.bias",
		"base_model.model.classifier.out_proj.weight", "base_model.model.classifier.out_proj.bias",
	}, keys)
	assert.Len(t, p.Targets, 2)

	none := encoder()
	none.Modules = none.Modules[:2]
	_, err := lora.NewPlacement(parse(t, `"target_modules":["query"],"task_type":"SEQ_CLS"`), none)
	require.ErrorIs(t, err, lora.ErrUnsupported)
	assert.ErrorContains(t, err, `task_type: SEQ_CLS is for a model with a head that classifies`)
}

// With bias: all PEFT writes the biases of a module that is saved whole three times, of
// which it reads one; of a head that is one layer the second has not even the name that
// it expects.
func TestCopiesOfBiases(t *testing.T) {
	for _, c := range []struct {
		head   []string
		copies []string
	}{
		{[]string{"classifier.dense", "classifier.out_proj"}, []string{
			"classifier.modules_to_save.default.dense.bias", "classifier.original_module.dense.bias",
			"classifier.modules_to_save.default.out_proj.bias", "classifier.original_module.out_proj.bias",
		}},
		{[]string{"classifier"}, []string{"classifier.modules_to_save.bias", "classifier.original_module.bias"}},
	} {
		m := encoder()
		m.Modules = m.Modules[:2]
		for _, name := range c.head {
			m.Modules = append(m.Modules, lora.Module{Name: name, Kind: lora.Linear, In: 4, Out: 4, Bias: true})
		}
		p := place(t, `"target_modules":["query"],"task_type":"SEQ_CLS","bias":"all"`, m)
		file := map[string]tensor.Tensor{}
		for _, s := range p.Tensors() {
			file[s.Key] = ramp(t, s.Shape...)
		}
		for _, key := range c.copies {
			file["base_model.model."+key] = ramp(t, 4)
		}
		require.NoError(t, adapterOf(t, p.Config(), file).Check(p, lora.CheckOptions{}).Err())

		for _, stranger := range []string{"classifier.modules_to_save.weight", "classifier.copy.bias", "other.original_module.bias", "classifier.original_module"} {
			file["base_model.model."+stranger] = ramp(t, 4)
			err := adapterOf(t, p.Config(), file).Check(p, lora.CheckOptions{}).Err()
			require.ErrorIs(t, err, lora.ErrUnmatched, stranger)
			require.ErrorContains(t, err, stranger)
			delete(file, "base_model.model."+stranger)
		}
	}
}

// An adapter must bring what the model has from nowhere else.
func TestComplete(t *testing.T) {
	p := place(t, `"target_modules":["query"],"task_type":"SEQ_CLS"`, encoder())
	require.NoError(t, p.CheckComplete([]string{"classifier.dense.bias", "classifier.out_proj.weight"}))
	err := p.CheckComplete([]string{"classifier.dense.bias", "roberta.pooler.dense.weight"})
	require.ErrorIs(t, err, lora.ErrMissing)
	assert.ErrorContains(t, err, `"roberta.pooler.dense.weight" is neither in the checkpoint nor saved`)
}

func TestHeadSize(t *testing.T) {
	for dir, want := range map[string]int{"classes-bert": 3, "classes-xlm-roberta": 4, "classes-mpnet": 1, "classes-llama": 2} {
		a, err := lora.Load("../testdata/tasks/" + dir + "/init")
		require.NoError(t, err)
		n, err := a.NumClasses()
		require.NoError(t, err)
		assert.Equal(t, want, n)
		require.NoError(t, a.Close())
	}
	a, err := lora.Load("../testdata/tasks/pairs-bert/init")
	require.NoError(t, err)
	defer a.Close()
	_, err = a.NumClasses()
	assert.ErrorIs(t, err, lora.ErrMissing)
}
