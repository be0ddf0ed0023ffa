package diffusion

import "github.com/lorafuse/lorafuse/diffusion/dit"

// Normalise brings the values of a latent, as the autoencoder gives it, to those that the
// transformer takes, in place. It is what training does with latents of a cache, before it
// folds them by Fold.
func (c *Canvas) Normalise(x dit.Latent) {
	if c.scale != nil {
		c.scale.Normalise(x)
	}
}

// Fold is how many places of the autoencoder's latents, along each side, are one place of
// the transformer's. See dit.Latent.Fold.
func (c *Canvas) Fold() int { return max(c.fold, 1) }
