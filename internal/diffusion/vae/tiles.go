package vae

import (
	"context"
	"slices"
)

// run runs a coder on x, whose latent has the given rows and columns, at once or in blended
// tiles.
//
// Tiles begin every tile − overlap rows and columns; tiles at the ends are smaller. The first
// rows of a tile, as many as the overlap, blend with the tile above, then its first columns
// with the tile on the left. diffusers' enable_tiling divides and blends images in the same
// way.
func (v *VAE) run(ctx context.Context, c *coder, x Picture, rows, columns int) (Picture, error) {
	down, across, sizes := v.tiles(rows, columns)
	if len(down) == 1 && len(across) == 1 {
		return v.compute(ctx, c, size{rows, columns}, x)
	}
	if _, err := v.host.Programs(ctx, v.slot, v.specs(c, sizes)...); err != nil {
		return Picture{}, err
	}
	in, out := c.in(v.space), c.out(v.space)
	all := Picture{Channels: out.channels, Height: rows * out.pixels, Width: columns * out.pixels}
	all.Values = make([]float32, all.Channels*all.Height*all.Width)
	fade, step := v.overlap*out.pixels, (v.tile-v.overlap)*out.pixels
	above := make([]Picture, len(across))
	for i, r := range down {
		for j, k := range across {
			tile, err := v.compute(ctx, c, size{r.n, k.n}, x.cut(r.scaled(in.pixels), k.scaled(in.pixels)))
			if err != nil {
				return Picture{}, err
			}
			if i > 0 {
				tile.fadeRows(above[j], fade)
			}
			if j > 0 {
				tile.fadeColumns(above[j-1], fade) // already in this row
			}
			above[j] = tile
			all.put(tile, i*step, j*step, step)
		}
	}
	return all, nil
}

// tiles returns the row and column ranges of the tiles of a latent, and their distinct sizes.
func (v *VAE) tiles(rows, columns int) (down, across []stretch, sizes []size) {
	down, across = v.cuts(rows, columns)
	for _, r := range down {
		for _, k := range across {
			if s := (size{r.n, k.n}); !slices.Contains(sizes, s) {
				sizes = append(sizes, s)
			}
		}
	}
	return down, across, sizes
}

// stretch is a range of n rows or columns that begins at first.
type stretch struct{ first, n int }

func (s stretch) scaled(times int) stretch { return stretch{s.first * times, s.n * times} }

// cuts returns the row and column ranges of the tiles of a latent.
func (v *VAE) cuts(rows, columns int) (down, across []stretch) {
	if v.tile == 0 || rows <= v.tile && columns <= v.tile {
		return []stretch{{0, rows}}, []stretch{{0, columns}}
	}
	cut := func(n int) (all []stretch) {
		for at := 0; at < n; at += v.tile - v.overlap {
			all = append(all, stretch{at, min(v.tile, n-at)})
		}
		return all
	}
	return cut(rows), cut(columns)
}

// cut returns a part of an image.
func (p Picture) cut(rows, columns stretch) Picture {
	q := Picture{Channels: p.Channels, Height: rows.n, Width: columns.n}
	for c := range p.Channels {
		for y := range rows.n {
			at := (c*p.Height+rows.first+y)*p.Width + columns.first
			q.Values = append(q.Values, p.Values[at:at+columns.n]...)
		}
	}
	return q
}

// put copies at most the first most rows and columns of a tile to a position.
func (p Picture) put(tile Picture, row, column, most int) {
	w := min(tile.Width, most, p.Width-column)
	for c := range p.Channels {
		for y := range min(tile.Height, most, p.Height-row) {
			copy(p.Values[(c*p.Height+row+y)*p.Width+column:][:w], tile.Values[(c*tile.Height+y)*tile.Width:])
		}
	}
}

// fadeRows blends the first n rows from the last n rows of the image above to their own
// values.
func (p Picture) fadeRows(above Picture, n int) {
	n = min(n, p.Height, above.Height)
	for c := range p.Channels {
		for y := range n {
			to := p.Values[(c*p.Height+y)*p.Width:][:p.Width]
			from := above.Values[(c*above.Height+above.Height-n+y)*above.Width:]
			for x := range to {
				to[x] = mix(from[x], to[x], y, n)
			}
		}
	}
}

// fadeColumns blends the first n columns from the image on the left, like fadeRows.
func (p Picture) fadeColumns(left Picture, n int) {
	n = min(n, p.Width, left.Width)
	for row := range p.Channels * p.Height {
		to, from := p.Values[row*p.Width:][:n], left.Values[(row+1)*left.Width-n:]
		for x := range to {
			to[x] = mix(from[x], to[x], x, n)
		}
	}
}

// mix interpolates linearly from a to b at step i of n.
func mix(a, b float32, i, n int) float32 {
	t := float32(i) / float32(n)
	return float32(a*(1-t)) + float32(b*t)
}
