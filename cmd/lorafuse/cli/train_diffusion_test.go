package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/train/config"
)

// A plan names the cache of the run, and not that of a temporary folder.
func TestDryRunWithoutCache(t *testing.T) {
	l := newLab(t)
	dir, model := l.pictures(), l.captioner()
	file := l.file("style.yaml", "task: diffusion\nmodel: "+model+"\noutput_dir: "+l.path("out")+"\ndiffusion: {images: "+dir+"}\n")
	r := command(t, "", "train", file, "--dry-run")
	assert.Contains(t, r.stderr, l.path("out/cache/text_embs"))
	assert.Contains(t, r.stderr, "no such entry; lorafuse data cache builds it")
	assert.NoDirExists(t, l.path("out"))
}

// The command that shows what was learned names the transformer that has learned it.
func TestToUse(t *testing.T) {
	l := newLab(t)
	file := l.write("own.safetensors", floats("x", []float32{1}, 1))
	c := config.Default()
	c.Task, c.Model = config.TaskDiffusion, "flux"
	assert.Equal(t, `draw --model flux --adapter out --prompt "..." --output picture.png`, toUse(c, "out"))
	c.Diffusion.Transformer, c.Diffusion.TransformerConfig = "own.safetensors", "own.json"
	assert.Equal(t, `draw --model flux --transformer own.safetensors --transformer-config own.json --adapter out --prompt "..." --output picture.png`, toUse(c, "out"))
	c.Diffusion, c.Model = config.Diffusion{}, file
	assert.Equal(t, "draw --model path/to/pipeline --transformer "+file+` --adapter out --prompt "..." --output picture.png`, toUse(c, "out"))
}
