#include <cstddef>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace linalg {

template <typename T> class Matrix {
  public:
    Matrix(std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns), data_(rows * columns) {}

    T &operator()(std::size_t r, std::size_t c) { return data_[r * columns_ + c]; }
    const T &operator()(std::size_t r, std::size_t c) const { return data_.at(r * columns_ + c); }

    friend Matrix operator*(const Matrix &a, const Matrix &b)
    {
        if (a.columns_ != b.rows_)
            throw std::invalid_argument("shapes do not fit");
        Matrix result(a.rows_, b.columns_);
        for (std::size_t i = 0; i < a.rows_; ++i)
            for (std::size_t j = 0; j < b.columns_; ++j)
                for (std::size_t k = 0; k < a.columns_; ++k)
                    result(i, j) += a(i, k) * b(k, j);
        return result;
    }

  private:
    std::size_t rows_, columns_;
    std::vector<T> data_;
};

} // namespace linalg

int main()
{
    linalg::Matrix<double> a(2, 2);
    a(0, 0) = 1.5;
    std::cout << (a * a)(0, 0) << std::endl;
    return 0;
}
