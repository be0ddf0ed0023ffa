package serve

import (
	"strconv"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// listing is a page of a list in OpenAI's form.
type listing[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	More   bool    `json:"has_more"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
}

// page returns at most limit elements of all, starting after the element with ID after.
func page[T, W any](all []T, id func(T) string, after string, limit int, tell func(T) W) (p listing[W], err error) {
	p = listing[W]{Object: "list", Data: []W{}}
	if after != "" {
		for len(all) > 0 && id(all[0]) != after {
			all = all[1:]
		}
		if len(all) == 0 {
			return p, web.Invalid("after", "after: nothing in the list has the id %.200q", after)
		}
		all = all[1:]
	}
	if p.More = len(all) > limit; p.More {
		all = all[:limit]
	}
	for _, x := range all {
		p.Data = append(p.Data, tell(x))
	}
	if len(all) > 0 {
		p.First, p.Last = orNone(id(all[0])), orNone(id(all[len(all)-1]))
	}
	return p, nil
}

// limit returns the query parameter limit of a call, the number of elements that a client wants at once.
func limit(c *web.Call, normal, most int) (int, error) {
	text := c.Request.URL.Query().Get("limit")
	if text == "" {
		return normal, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, web.Invalid("limit", "limit: found %.100q, expected a whole number from 1 to %d", text, most)
	}
	return n, nil
}

// mostListed is the maximum length of a listing.
const mostListed = 10_000

// orNone returns a pointer to v, or nil if v is zero.
func orNone[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
