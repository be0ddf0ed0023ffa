package picture

import "image"

// coloured converts an image of a lossy format to RGB like the decoders that Pillow uses. Chroma, which is stored at
// lower resolution, is interpolated, and WebP has limited range with black at 16 and white at 235. Package image
// repeats chroma samples instead, and treats WebP as full range like JPEG.
func coloured(img image.Image, format string) image.Image {
	switch x := img.(type) {
	case *image.YCbCr:
		if format == "webp" {
			return webpRGB(x)
		}
		return jpegRGB(x)
	case *image.NYCbCrA:
		rgb := webpRGB(&x.YCbCr)
		out := &image.NRGBA{Pix: rgb.Pix, Stride: rgb.Stride, Rect: rgb.Rect}
		for y := range rgb.Rect.Dy() {
			for i := range rgb.Rect.Dx() {
				out.Pix[y*out.Stride+4*i+3] = x.A[y*x.AStride+i]
			}
		}
		return out
	}
	return img
}

// plane is a plane of samples.
type plane struct {
	pix          []byte
	stride, w, h int
}

func (p plane) row(y int) []byte {
	y = max(0, min(p.h-1, y))
	return p.pix[y*p.stride:][:p.w]
}

// colours returns the two chroma planes.
func colours(x *image.YCbCr) (cb, cr plane) {
	w, h := x.Rect.Dx(), x.Rect.Dy()
	switch x.SubsampleRatio {
	case image.YCbCrSubsampleRatio420:
		w, h = (w+1)/2, (h+1)/2
	case image.YCbCrSubsampleRatio422:
		w = (w + 1) / 2
	case image.YCbCrSubsampleRatio440:
		h = (h + 1) / 2
	}
	return plane{x.Cb, x.CStride, w, h}, plane{x.Cr, x.CStride, w, h}
}

// jpegRGB converts a JPEG to RGB like libjpeg (jdsample.c and jdcolor.c: h2v2, h2v1 and h1v2 "fancy upsampling").
// Images with rarer subsampling ratios are returned unchanged.
func jpegRGB(x *image.YCbCr) image.Image {
	w, h := x.Rect.Dx(), x.Rect.Dy()
	cb, cr := colours(x)
	wide, high := false, false
	switch x.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
	case image.YCbCrSubsampleRatio420:
		wide, high = true, true
	case image.YCbCrSubsampleRatio422:
		wide = true
	case image.YCbCrSubsampleRatio440:
		high = true
	default:
		return x
	}
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	lines := [2][]int{make([]int, w+1), make([]int, w+1)}
	for y := range h {
		for i, p := range []plane{cb, cr} {
			p.spread(lines[i], y, wide, high)
		}
		light := x.Y[y*x.YStride:]
		for i := range w {
			yy, u, v := int(light[i]), lines[0][i]-128, lines[1][i]-128
			pixel(out.Pix[y*out.Stride+4*i:], yy+(91881*v+1<<15)>>16, yy+(-22554*u-46802*v+1<<15)>>16, yy+(116130*u+1<<15)>>16)
		}
	}
	return out
}

// spread upsamples the samples of line y of a JPEG: a quarter of each comes from its neighbours, in both directions.
// Columns of one or two samples are repeated.
func (p plane) spread(out []int, y int, wide, high bool) {
	smooth := !wide || p.w > 2
	near, far := p.row(y), p.row(y)
	if high {
		near, far = p.row(y/2), p.row(y/2)
		if smooth {
			far = p.row(y/2 - 1 + y%2*2)
		}
	}
	switch at := func(x int) int { return 3*int(near[x]) + int(far[x]) }; {
	case !wide:
		for x := range p.w {
			out[x] = int(near[x])
			if high {
				out[x] = (at(x) + 1 + y%2) >> 2
			}
		}
	case !smooth:
		for x := range out {
			out[x] = int(near[min(x/2, p.w-1)])
		}
	default:
		// Sums have weight 4 if lines are not upsampled, and 4 · 4 if they are.
		unit, shift, first, second := at, 4, 8, 7
		if !high {
			unit, shift, first, second = func(x int) int { return int(near[x]) }, 2, 1, 2
		}
		for x := range p.w {
			here := 3 * unit(x)
			left, right := here+unit(max(0, x-1))+first, here+unit(min(p.w-1, x+1))+second
			if 2*x < len(out) {
				out[2*x] = left >> shift
			}
			if 2*x+1 < len(out) {
				out[2*x+1] = right >> shift
			}
		}
	}
}

// pixel writes an opaque pixel.
func pixel(at []byte, r, g, b int) {
	at[0], at[1], at[2], at[3] = byte(max(0, min(255, r))), byte(max(0, min(255, g))), byte(max(0, min(255, b))), 255
}

// webpRGB converts a lossy WebP to RGB like libwebp (dsp/upsampling.c and dsp/yuv.h): 9/16 of the chroma of a pixel
// come from the nearest sample.
func webpRGB(x *image.YCbCr) *image.RGBA {
	w, h := x.Rect.Dx(), x.Rect.Dy()
	cb, cr := colours(x)
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		light := x.Y[y*x.YStride:]
		for i := range w {
			yy, u, v := int(light[i])*19077>>8, cb.mixed(i, y), cr.mixed(i, y)
			pixel(out.Pix[y*out.Stride+4*i:], (yy+v*26149>>8-14234)>>6, (yy-u*6419>>8-v*13320>>8+8708)>>6, (yy+u*33050>>8-17685)>>6)
		}
	}
	return out
}

// mixed returns the interpolated chroma of a pixel of a WebP.
func (p plane) mixed(x, y int) int {
	near, far := p.row(y/2), p.row(y/2-1+y%2*2)
	i, j := x/2, x/2-1+x%2*2
	if j < 0 || j >= p.w { // no neighbour at the left and right edge
		return (3*int(near[i]) + int(far[i]) + 2) >> 2
	}
	a, b, c, d := int(near[i]), int(near[j]), int(far[i]), int(far[j])
	return ((a+b+c+d+8+2*(b+c))>>3 + a) >> 1
}
