package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync"
)

// wordCache caches the ids of words, bounded in number and length. It is safe for
// concurrent use.
type wordCache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

const (
	cacheShards     = 16
	cacheShardWords = 1 << 12
	cacheWordBytes  = 64
)

type cacheShard struct {
	sync.RWMutex
	words map[string][]int32
}

func newWordCache() *wordCache {
	return &wordCache{seed: maphash.MakeSeed()}
}

func (c *wordCache) shard(word string) *cacheShard {
	return &c.shards[maphash.String(c.seed, word)%cacheShards]
}

// get appends the ids of a cached word.
func (c *wordCache) get(dst []int32, word string) ([]int32, bool) {
	if len(word) > cacheWordBytes {
		return dst, false
	}
	s := c.shard(word)
	s.RLock()
	ids, ok := s.words[word]
	s.RUnlock()
	return append(dst, ids...), ok
}

func (c *wordCache) add(word string, ids []int32) {
	if len(word) > cacheWordBytes {
		return
	}
	// word is a substring of a longer text, which the cache must not keep alive.
	word = strings.Clone(word)
	ids = append([]int32(nil), ids...)
	s := c.shard(word)
	s.Lock()
	defer s.Unlock()
	if s.words == nil || len(s.words) >= cacheShardWords {
		s.words = make(map[string][]int32) // full: start over
	}
	s.words[word] = ids
}
