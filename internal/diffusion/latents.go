package diffusion

import "github.com/lorafuse/lorafuse/internal/diffusion/dit"

// Normalise normalizes a latent of the autoencoder for the transformer, in place. Training
// applies it to cached latents before Fold.
func (c *Canvas) Normalise(x dit.Latent) {
	if c.scale != nil {
		c.scale.Normalise(x)
	}
}

// Fold returns the number of autoencoder positions per transformer position, along each side.
// See dit.Latent.Fold.
func (c *Canvas) Fold() int { return max(c.fold, 1) }
