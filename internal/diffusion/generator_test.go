package diffusion

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// fullDevice has no memory for the next program if it is full.
type fullDevice struct {
	backend.Device
	full bool
}

func (d *fullDevice) Compile(p *ir.Program) (backend.Executable, error) {
	if d.full {
		d.full = false
		return nil, fmt.Errorf("program: %w", backend.ErrOutOfMemory)
	}
	return d.Device.Compile(p)
}

// newGenerator opens a pipeline of Z-Image with text encoder and autoencoder.
func newGenerator(t *testing.T, resident bool) (g *Generator, dev *fullDevice, dir string) {
	dir = goldenPipeline(t, "zimage")
	for part, from := range map[string]string{Transformer: "zimage/transformer", VAE: "vae-flux/vae"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, part)))
		require.NoError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("../../testdata/dit", from))))
	}
	p, err := Open(dir)
	require.NoError(t, err)
	p.Parts[VAE] = Part{Dir: filepath.Join(dir, VAE), There: true} // not in model_index.json
	dev = &fullDevice{Device: testdevice.Open(t, backend.Options{})}
	g, err = NewGenerator(dev, p)
	require.NoError(t, err)
	t.Cleanup(func() { g.Close() })
	g.Resident = resident
	require.NoError(t, g.OpenTransformer())
	return g, dev, dir
}

// A resident generator opens its text encoders once. They encode as fresh ones do, and are closed
// if the transformer needs their memory.
func TestResidentEncoders(t *testing.T) {
	encode := func(g *Generator, text string) (*Plan, error) {
		p, err := g.Plan(Request{Prompts: []string{text}, Width: 16, Height: 16, Steps: 1})
		require.NoError(t, err)
		return p, g.Encode(t.Context(), p, nil)
	}
	once, _, dir := newGenerator(t, false)
	want, err := encode(once, "a cat")
	require.NoError(t, err)
	require.NotNil(t, want.Drawing.Negative)
	require.Nil(t, once.encoder)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, TextEncoder)))
	_, err = encode(once, "a cat")
	require.Error(t, err)

	g, dev, dir := newGenerator(t, true)
	require.NoError(t, g.Start(quant.None, nil))
	_, err = encode(g, "something else")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, TextEncoder, "*"))
	require.NoError(t, err)
	for _, name := range files {
		require.NoError(t, os.Rename(name, name+".away"))
	}
	got, err := encode(g, "a cat")
	require.NoError(t, err)
	assert.Equal(t, want.Prompts, got.Prompts)
	assert.Equal(t, want.Drawing.Negative, got.Drawing.Negative)

	slot, err := g.Attach(nil)
	require.NoError(t, err)
	shot := Shot{slot, got.Drawing}
	shot.Drawing.Prompt, shot.Drawing.Negative = dit.Prompt{Features: g.Space.Text, Values: make([]float32, 3*g.Space.Text)}, nil
	first, err := g.Draw(t.Context(), []Shot{shot}, nil)
	require.NoError(t, err)
	require.NotNil(t, g.encoder)
	dev.full = true
	again, err := g.Draw(t.Context(), []Shot{shot}, nil)
	require.NoError(t, err)
	assert.Nil(t, g.encoder)
	assert.Equal(t, first, again)
	dev.full = true
	_, err = g.Draw(t.Context(), []Shot{shot}, nil)
	assert.ErrorIs(t, err, backend.ErrOutOfMemory)
}

// A request that a pipeline cannot draw is refused before weights are loaded.
func TestPlan(t *testing.T) {
	g, _, _ := newGenerator(t, false)
	negative, wrong := "rain", 0.0
	wrong /= wrong
	for says, r := range map[string]Request{
		"steps, expected 1 to 1000":              {Steps: -1},
		"found guidance NaN":                     {Guidance: &wrong},
		"size: diffusion: wrong drawing":         {Width: 17, Height: 16},
		"negative: found a text with an encoded": {Negative: &negative, Embeddings: []string{"a.safetensors"}},
	} {
		_, err := g.Plan(r)
		assert.ErrorContains(t, err, says)
	}
	p, err := g.Plan(Request{})
	require.NoError(t, err)
	width, height := g.Size(p)
	assert.Equal(t, []int{1024, 1024, g.Style.Steps}, []int{width, height, p.Drawing.Steps})
	assert.Equal(t, g.Style.Scale, p.Guidance)
}
