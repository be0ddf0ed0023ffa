package diffusion

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// OpenTransformer opens the transformer and returns its model and its interface. Errors:
// ErrPart, ErrPipeline for an architecture that is not a diffusion transformer, and errors of
// model.Open.
func (p *Pipeline) OpenTransformer() (*model.Model, dit.Transformer, error) {
	dir, err := p.Weights(Transformer)
	if err != nil {
		return nil, nil, err
	}
	open := model.Open
	if p.single.File != "" {
		open = p.single.open
	}
	m, err := open(dir)
	if err != nil {
		return nil, nil, err
	}
	t, ok := m.Config.Family.(dit.Transformer)
	if !ok {
		_ = m.Close()
		return nil, nil, notTransformer(dir, m.Config)
	}
	p.notes.add(m.UnreadLine())
	return m, t, nil
}

// Config returns the configuration and the interface of the transformer without loading
// weights. Errors: errors of OpenTransformer, except weight errors.
func (p *Pipeline) Config() (*model.Config, dit.Transformer, error) {
	if _, err := p.Folder(Transformer); err != nil {
		return nil, nil, err
	}
	path := p.Parts[Transformer].Dir
	raw, err := p.transformerConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("diffusion: %w", err)
	}
	c, err := model.ParseConfig(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("diffusion: %s: %w", path, err)
	}
	t, ok := c.Family.(dit.Transformer)
	if !ok {
		return nil, nil, notTransformer(path, c)
	}
	return c, t, nil
}

// Modules returns the configuration of the transformer and the layers that adapters may
// target. It reads a folder without its weights, and a single file by its tensors. Errors:
// errors of Config and dit.Modules, and for a file errors of OpenTransformer.
func (p *Pipeline) Modules() (*model.Config, []nn.Module, error) {
	if p.IsSingle() {
		m, _, err := p.OpenTransformer()
		if err != nil {
			return nil, nil, err
		}
		return m.Config, m.Modules(), m.Close()
	}
	c, _, err := p.Config()
	if err != nil {
		return nil, nil, err
	}
	modules, err := dit.Modules(c)
	return c, modules, err
}

func notTransformer(dir string, c *model.Config) error {
	return fmt.Errorf("diffusion: %w: %s is a %s, expected a diffusion transformer: %s", ErrPipeline, dir, c.Architecture, supported())
}
