package gpu

import "github.com/lorafuse/lorafuse/internal/ir"

// These launches run the kernels of kernels/shared/group_norm.cu.

// groupNormPart is the number of elements of a sample that a block processes.
const groupNormPart = 32768

func prepareGroupNorm(c *compiler, l *ir.Launch) (step, error) {
	a, x, w, b, out := l.Attr.(ir.GroupNormAttr), l.In[0], l.In[1], l.In[2], l.Out[0]
	stored := narrow(out, x)
	var kernels [3]*Kernel
	for i, name := range []string{"group_norm_sums" + form(stored), "group_norm_stats_f32", "group_norm" + form(stored)} {
		var err error
		if kernels[i], err = c.kernel("group_norm", name, 256); err != nil {
			return nil, err
		}
	}
	shape := x.Type.Shape
	channels, pixels := shape[len(shape)-1].N, shape[1:len(shape)-1].Elements(nil)
	part := max(1, groupNormPart/channels)
	parts, size := blocks(pixels, part), channels/a.Groups
	const pair = 8 // bytes of two numbers of a channel
	samples := shape[0].Resolve(c.dims)
	c.reserve(pair * samples * channels * (parts + 1))
	return func(r *Run) {
		samples := r.axis(x, 0)
		stats := r.Scratch + Pointer(pair*samples*channels*parts)
		kernels[0].grid(samples*parts, 1, 1).pointer("sums", r.Scratch).pointer("x", r.at(x))
		kernels[0].long("pixels", pixels).int("c", channels).int("part", part).int("parts", parts).stored(stored)
		kernels[1].grid(samples*a.Groups, 1, 1).pointer("stats", stats).pointer("sums", r.Scratch).pointer("w", r.at(w))
		kernels[1].long("pixels", pixels).int("c", channels).int("size", size).int("part", part).int("parts", parts).float("eps", a.Eps)
		kernels[2].grid(samples*parts, 1, 1).pointer("out", r.at(out)).pointer("x", r.at(x)).pointer("stats", stats).pointer("b", r.at(b))
		kernels[2].long("pixels", pixels).int("c", channels).int("part", part).int("parts", parts).stored(stored)
	}, nil
}
