// Attention on tensor cores: tiles of rows in shared memory, and products of them in registers. For kernels.
//
// A tile holds `columns` (head_dim rounded up to what there is a kernel for; zeros beyond head_dim) 16-bit
// elements of each of its rows in chunks of 16 bytes. Chunk c of row r lies at place c ^ (r % 8): the eight
// rows that load_matrices reads at once then lie in different banks.
//
// Sums of a product are kept as multiply_accumulate leaves them: sums[i][j] of a lane is part of the 16 x 8
// block of rows from 16 i and columns from 8 j on; see intrinsics.h for which.
#pragma once

#include "cuda/kernels/attention_rows.h"
#include "cuda/vectors.h"

namespace trainctl::cuda {

inline constexpr int chunk_elements = 8;
// Of one block, on every device that these kernels run on (sm_86 and sm_89 have the least).
inline constexpr std::size_t largest_shared_bytes = 99U * 1024U;

// Elements from one row of a tile to the next: a multiple of eight chunks, so that places stay within the
// row.
constexpr int tile_stride(int columns) { return (columns + 63) / 64 * 64; }
constexpr int tile_elements(int rows, int columns) { return rows * tile_stride(columns); }

// Where chunk 0 of row `row` lies; chunk c lies at that place ^ c * chunk_elements.
constexpr int place_of(int columns, int row) {
    return row * tile_stride(columns) + (row & 7) * chunk_elements;
}

template <int columns, class T>
__device__ T* chunk_at(T* tile, int row, int chunk) {
    return tile + (place_of(columns, row) ^ chunk * chunk_elements);
}

// How rows of global memory may be read and written: what head_dim and the tensors' addresses allow.
enum class RowAccess : std::uint8_t { By16Bytes, By8Bytes, ByElement };

// Block of `threads`: rows `first` .. `first` + rows - 1 of a head to a tile, zeros for those beyond its
// length. They have arrived after wait_groups and sync_block.
template <int rows, int columns, int threads, class T>
__device__ void fetch_tile(T* tile, HeadRows<const T> from, int first, const AttentionSettings& s,
                           RowAccess access) {
    // A thread keeps to one chunk of a row, so that all it needs is one pointer.
    constexpr int chunks = tile_stride(columns) / chunk_elements;
    constexpr int step = threads / chunks;
    static_assert(threads % chunks == 0 && rows % step == 0);
    const int thread = static_cast<int>(threadIdx.x);
    const int chunk = thread % chunks;
    const int row = thread / chunks;
    const int column = chunk * chunk_elements;
    const int present = static_cast<int>(s.length) - first - row;  // rows from this thread's first one on
    const int dim = static_cast<int>(s.head_dim);
    const T* source = from.row(first + row) + column;
    if (columns % 64 != 0 && column >= columns) return;
    if (access == RowAccess::By16Bytes) {
#pragma unroll
        for (int i = 0; i < rows; i += step) {
            const bool inside = i < present && column < dim;
            fetch_16(chunk_at<columns>(tile, row + i, chunk), source, inside ? Fetch::Data : Fetch::Zeros);
            source += step * from.stride;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < rows; i += step) {
        T* const to = chunk_at<columns>(tile, row + i, chunk);
        if (access == RowAccess::By8Bytes) {
#pragma unroll
            for (int part = 0; part < chunk_elements; part += 4) {
                const bool inside = i < present && column + part < dim;
                fetch_8(to + part, source + part, inside ? Fetch::Data : Fetch::Zeros);
            }
        } else {
#pragma unroll 1
            for (int j = 0; j < chunk_elements; ++j)
                to[j] = i < present && column + j < dim ? source[j] : T{};
        }
        source += step * from.stride;
    }
}

// Warp: sums += left right^T over all columns: rows left_row .. of tile `left` by rows right_row .. of tile
// `right`.
template <int columns, int row_tiles, int column_tiles, class T>
__device__ void multiply_rows(float (&sums)[row_tiles][column_tiles][4], const T* left, int left_row,
                              const T* right, int right_row) {
    static_assert(columns % 16 == 0 && column_tiles % 2 == 0);
    constexpr int stride = tile_stride(columns);
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int left_place =
        computed_here(place_of(columns, left_row + lane % 16) ^ lane / 16 * chunk_elements);
    const int right_place = computed_here(place_of(columns, right_row + lane % 8 + lane / 16 * 8) ^
                                          lane / 8 % 2 * chunk_elements);
#pragma unroll 4
    for (int column = 0; column < columns; column += 16) {
        std::uint32_t a[row_tiles][4];
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
            load_matrices(a[i], left + (left_place ^ column) + 16 * i * stride);
#pragma unroll
        for (int j = 0; j < column_tiles; j += 2) {
            std::uint32_t b[4];  // of two blocks of eight right rows
            load_matrices(b, right + (right_place ^ column) + 8 * j * stride);
            const std::uint32_t first[2] = {b[0], b[1]};
            const std::uint32_t second[2] = {b[2], b[3]};
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
                multiply_accumulate<T>(sums[i][j], a[i], first);
                multiply_accumulate<T>(sums[i][j + 1], a[i], second);
            }
        }
    }
}

// Sums rounded to T as left operand of the next product: [16 row_tiles x 16 inner_tiles].
template <class T, int row_tiles, int inner_tiles>
struct LeftOperand {
    std::uint32_t a[row_tiles][inner_tiles][4];

    __device__ explicit LeftOperand(const float (&sums)[row_tiles][2 * inner_tiles][4]) {
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
            for (int k = 0; k < inner_tiles; ++k) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    a[i][k][2 * half] = narrow_pair<T>(sums[i][2 * k + half][0], sums[i][2 * k + half][1]);
                    a[i][k][2 * half + 1] =
                        narrow_pair<T>(sums[i][2 * k + half][2], sums[i][2 * k + half][3]);
                }
            }
        }
    }
};

// Warp: sums += left tile: `left` by as many rows of the tile as it has columns.
template <int columns, int row_tiles, int inner_tiles, class T>
__device__ void multiply_columns(float (&sums)[row_tiles][columns / 8][4],
                                 const LeftOperand<T, row_tiles, inner_tiles>& left, const T* tile) {
    constexpr int stride = tile_stride(columns);
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int place = computed_here(place_of(columns, lane % 16) ^ lane / 16 * chunk_elements);
#pragma unroll
    for (int k = 0; k < inner_tiles; ++k) {
#pragma unroll
        for (int j = 0; j < columns / 8; j += 2) {
            std::uint32_t b[4];
            load_matrices_transposed(b, tile + (place ^ j * chunk_elements) + 16 * k * stride);
            const std::uint32_t first[2] = {b[0], b[1]};
            const std::uint32_t second[2] = {b[2], b[3]};
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
                multiply_accumulate<T>(sums[i][j], left.a[i][k], first);
                multiply_accumulate<T>(sums[i][j + 1], left.a[i][k], second);
            }
        }
    }
}

template <int row_tiles, int column_tiles>
__device__ void clear(float (&sums)[row_tiles][column_tiles][4]) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][j][k] = 0.0F;
        }
    }
}

// One lane's view of the rows of its warp's sums: `which` 0 is row lane / 4 of block i, 1 the eighth row
// after it.
__device__ inline int sum_row(int i, int which) {
    return 16 * i + 8 * which + static_cast<int>(threadIdx.x) % warp_size / 4;
}
// The first of the two columns of block j.
__device__ inline int sum_column(int j) { return 8 * j + static_cast<int>(threadIdx.x) % 4 * 2; }

// Sum and maximum over the four lanes that share a row.
__device__ inline float row_sum(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}
__device__ inline float row_max(float x) {
    x = fmaxf(x, shuffle_xor(x, 1));
    return fmaxf(x, shuffle_xor(x, 2));
}

// A query does not see later keys; what lies beyond the length is later than every query that counts.
template <int row_tiles, int key_tiles>
__device__ void hide_later_keys(float (&scores)[row_tiles][key_tiles][4], int first_query, int first_key) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int j = 0; j < key_tiles; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (first_key + sum_column(j) + k % 2 > first_query + sum_row(i, k / 2))
                    scores[i][j][k] = -INFINITY;
            }
        }
    }
}

// The same where rows are keys and columns queries.
template <int row_tiles, int query_tiles>
__device__ void hide_earlier_queries(float (&scores)[row_tiles][query_tiles][4], int first_key,
                                     int first_query) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int j = 0; j < query_tiles; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (first_key + sum_row(i, k / 2) > first_query + sum_column(j) + k % 2)
                    scores[i][j][k] = -INFINITY;
            }
        }
    }
}

template <class Unit, class T>
__device__ void copy_chunk(T* to, const T* from, int elements) {
    constexpr int step = sizeof(Unit) / sizeof(T);
    for (int i = 0; i < elements; i += step)
        *reinterpret_cast<Unit*>(to + i) = *reinterpret_cast<const Unit*>(from + i);
}

// Warp: sums, rounded, to rows `first` .. of a head, those below its length. They pass rows tile_row .. of a
// tile, which nobody else may be using, so that neighbouring bytes leave together.
template <int columns, int row_tiles, class T>
__device__ void store_sums(HeadRows<T> to, int first, const float (&sums)[row_tiles][columns / 8][4], T* tile,
                           int tile_row, const AttentionSettings& s, RowAccess access) {
    constexpr int chunks = columns / chunk_elements;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int j = 0; j < chunks; ++j) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                T* chunk = chunk_at<columns>(tile, tile_row + sum_row(i, which), j);
                *reinterpret_cast<std::uint32_t*>(chunk + lane % 4 * 2) =
                    narrow_pair<T>(sums[i][j][2 * which], sums[i][j][2 * which + 1]);
            }
        }
    }
    sync_warp();
    const int length = static_cast<int>(s.length);
    const int dim = static_cast<int>(s.head_dim);
    for (int index = lane; index < 16 * row_tiles * chunks; index += warp_size) {
        const int row = index / chunks;
        const int chunk = index % chunks;
        const int left = dim - chunk * chunk_elements;
        if (first + row >= length || left <= 0) continue;
        T* out = to.row(first + row) + chunk * chunk_elements;
        const T* from = chunk_at<columns>(tile, tile_row + row, chunk);
        const int elements = left < chunk_elements ? left : chunk_elements;
        if (access == RowAccess::By16Bytes) {
            copy_chunk<Pack<T>>(out, from, elements);
        } else if (access == RowAccess::By8Bytes) {
            copy_chunk<uint2>(out, from, elements);
        } else {
            copy_chunk<T>(out, from, elements);
        }
    }
}

}  // namespace trainctl::cuda
