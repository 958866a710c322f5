#include "herd/draw/table.h"

#include <gmock/gmock.h>

namespace herd::draw {
namespace {

using testing::HasSubstr;

TEST(Table, AlignsNumbersOnTheRight) {
  const Table table{{{"name"}, {"bytes", true}}, {{"ring", "7"}, {"direct", "1024"}}};
  EXPECT_EQ(text_table(table), "name    bytes\nring        7\ndirect   1024\n");
  EXPECT_THAT(html_table(table), HasSubstr("<td class=\"right\">1024</td>"));
}

}  // namespace
}  // namespace herd::draw
